"""What the server observes about itself for operators: metrics, time series, recent attempts, groups of errors."""
