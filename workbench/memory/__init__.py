"""What a training step needs on the device before it runs, and how to cut a batch so that it fits."""
