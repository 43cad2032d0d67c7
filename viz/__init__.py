"""Views of a trace. Nothing here calls a model."""
