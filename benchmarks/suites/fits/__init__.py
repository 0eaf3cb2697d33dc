"""Single fits and fits of all classes, in contests with the peers."""
