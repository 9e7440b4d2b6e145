"""Which of the ideas help: configurations of the wings, priced from counts before any training.

`wb.advise` is the entry; the package has another name so that `workbench.advise` is that function alone.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
