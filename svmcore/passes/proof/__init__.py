"""What a certificate is made of: sums over the variables, and values in twice the digits."""
