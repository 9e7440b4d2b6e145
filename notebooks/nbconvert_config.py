"""`jupyter nbconvert --config notebooks/nbconvert_config.py NOTEBOOK…` executes in place, without volatile metadata."""

import base64
import io

from nbconvert.preprocessors import (
    ClearMetadataPreprocessor,
    ExecutePreprocessor,
    Preprocessor,
    TagRemovePreprocessor,
)
from PIL import Image


class ExecuteAllButWidgets(ExecutePreprocessor):
    """Leaves cells with the tag "widget" alone: their outputs are not kept, and nbval runs them.

    nbclient may wait forever for their replies while widgets send messages (nbconvert issues 2003 and 2029).
    """

    def preprocess_cell(self, cell, resources, index):
        if "widget" in cell.metadata.get("tags", []):
            return cell, resources
        return super().preprocess_cell(cell, resources, index)


class DropProgress(Preprocessor):
    """Drops what cells wrote to stderr, and bars, which are for those who wait."""

    enabled = True

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_progress(output)]
        return cell, resources


def _is_progress(output):
    return output.get("name") == "stderr" or "application/vnd.jupyter.widget-view+json" in output.get("data", {})


class SmallImages(Preprocessor):
    """Reduces static images to 64 colours, enough for figures: a fifth of the bytes."""

    enabled = True

    def preprocess_cell(self, cell, resources, index):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                data["image/png"] = _smaller(data["image/png"])
        return cell, resources


def _smaller(png):
    small = io.BytesIO()
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    image.quantize(64, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


c = get_config()  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
c.NbConvertApp.export_format = "notebook"
c.NbConvertApp.use_output_suffix = False
c.FilesWriter.build_directory = ""  # beside the source

# Order matters. Widgets are dropped because a saved one shows an error until it is run again, time stamps because they
# change with every run.
c.NotebookExporter.preprocessors = [
    ExecuteAllButWidgets,
    TagRemovePreprocessor,
    DropProgress,
    SmallImages,
    ClearMetadataPreprocessor,
]
c.ExecuteAllButWidgets.timeout = 600
c.ExecuteAllButWidgets.record_timing = False
# One browser draws all static images of a notebook: with one for each figure, kaleido sometimes prints an error into
# the output when it closes them.
c.ExecuteAllButWidgets.extra_arguments = [
    "--IPKernelApp.exec_lines=import kaleido, warnings",
    "--IPKernelApp.exec_lines=warnings.filterwarnings('ignore', 'The kopts argument is ignored')",
    "--IPKernelApp.exec_lines=kaleido.start_sync_server(silence_warnings=True)",
]
c.TagRemovePreprocessor.remove_all_outputs_tags = {"widget"}
c.ClearMetadataPreprocessor.preserve_cell_metadata_mask = {"tags"}
# JupyterLab writes what differs from its kernel on opening, and a notebook would at once have changes to save.
c.ClearMetadataPreprocessor.preserve_nb_metadata_mask = {"kernelspec", "language_info"}
