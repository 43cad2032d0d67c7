"""Views of a trace: the live viewer and the charts. Nothing here calls a model or imports torch."""
