"""Changes: checked values become transactions."""
