"""Tables in LaTeX."""

import pandas as pd

from workbench.report.latex import latex_table


def test_special_characters_and_symbols() -> None:
    text = latex_table(pd.DataFrame({"a & b": [r"50 % of x_1 \ {y} ~ </script>"], "parts ÷ batch": ["2 × 3 ± 1"]}))
    assert r"a \& b & parts $\div$ batch \\" in text
    assert r"50 \% of x\_1 \textbackslash{} \{y\} \textasciitilde{} $<$/script$>$ & 2 $\times$ 3 $\pm$ 1 \\" in text


def test_numbers_are_right_aligned_with_their_unit_in_the_head() -> None:
    text = latex_table(pd.DataFrame({"K": [1, 16], "peak_bytes": [2**30, 2**29]}))
    assert text.startswith(r"\begin{tabular}{rr}") and r"K & peak (GiB) \\" in text and r"16 & 0.50 \\" in text
