"""The commands of `marginflow`, by what they are for; each imports what it needs when it runs."""
