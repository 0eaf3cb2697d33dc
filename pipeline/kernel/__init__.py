"""K: `choose` says which and how it is held, `strips` and `gram` put it on storage, `columns` serve it on demand."""
