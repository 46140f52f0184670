"""Where candidates come from: vectors themselves, a scan of all codes, the multi-index."""
