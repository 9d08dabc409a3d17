"""What Monte Carlo is made of: draws, the centroids of a minibatch, loops over trials, and what trials say."""
