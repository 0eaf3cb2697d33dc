"""The sweep over digits that tests of batches run: two gammas, three C, three folds of `N` rows."""

CS, GAMMAS, FOLDS, SEED = (0.5, 5.0, 50.0), (0.02, 0.08), 3, 4
N = 600
