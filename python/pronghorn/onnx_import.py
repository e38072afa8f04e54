"""The name of `pronghorn.onnx` in earlier versions."""

from pronghorn.onnx import ImportedModel, ShapeOption, Source, import_onnx

__all__ = ["ImportedModel", "ShapeOption", "Source", "import_onnx"]
