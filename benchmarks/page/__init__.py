"""docs/performance.md from the records alone: claims, tables and figures."""
