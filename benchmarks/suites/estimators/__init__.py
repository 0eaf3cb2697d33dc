"""What else estimators do, beside those of the peers: searches, labels, probabilities, other machines."""
