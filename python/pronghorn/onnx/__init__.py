"""The ONNX importer: from a file to Pronghorn's graph and its weights."""

from pronghorn.onnx.beginning import Begin
from pronghorn.onnx.fixed_inputs import Fixed
from pronghorn.onnx.importer import ImportedModel, Output, import_onnx
from pronghorn.onnx.input_shape import ShapeOption
from pronghorn.onnx.reading import Source, external_files

__all__ = ["Begin", "Fixed", "ImportedModel", "Output", "ShapeOption", "Source", "external_files", "import_onnx"]
