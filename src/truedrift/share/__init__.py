"""Models to share: a folder with weights and a model card, ONNX files, and a local page."""
