"""The doors: what users pass becomes checked values, or a typed error that names cause and remedy."""
