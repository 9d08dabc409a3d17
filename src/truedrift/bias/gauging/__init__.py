"""What the gauge is made of: inputs, expected weights, parts left out, the n needed, the light."""
