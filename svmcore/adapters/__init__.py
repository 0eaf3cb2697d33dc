"""The core at other libraries' addresses: the only files of svmcore that import scikit-learn."""
