"""Kernels that read numbers from the lines of a text, and say which line is not an edge."""

import numpy as np

from workbench.core.errors import INT64_MAX
from workbench.kernels.jit import compiled, compiled_inline

LARGEST_ID = INT64_MAX - 1  # the number of nodes fits, too
WIDTH, NUMBER, NEGATIVE, LARGE, LIMIT, QUOTE, WEIGHT = range(1, 8)
"""What is wrong with a line."""


@compiled_inline
def _is_end(c):
    return c == 10 or c == 13


@compiled_inline
def _after_end(text, i):
    """Where the next line begins, from a line end."""
    if i + 1 < len(text) and text[i] == 13 and text[i + 1] == 10:
        return i + 2
    return min(i + 1, len(text))


@compiled_inline
def _line_end(text, i):
    while i < len(text) and not _is_end(text[i]):
        i += 1
    return i


@compiled_inline
def _skip_blanks(text, i, separator):
    while i < len(text) and (text[i] == 32 or (text[i] == 9 and separator != 9)):
        i += 1
    return i


@compiled_inline
def _skip_field(text, i, separator):
    """Where a field ends: quoted ones may contain anything, and braces (networkx) the rest of the line; -1: no end."""
    n = len(text)
    if separator == 0 and text[i] == 123:
        return _line_end(text, i)
    if text[i] == 34:
        i += 1
        while i < n and not _is_end(text[i]) and text[i] != 34:
            i += 1
            while i + 1 < n and text[i] == 34 and text[i + 1] == 34:
                i += 2
        if i == n or text[i] != 34:
            return -1
    while i < n and not _is_end(text[i]):
        if text[i] == separator or (separator == 0 and (text[i] == 32 or text[i] == 9)):
            return i
        i += 1
    return i


@compiled_inline
def _whole_number(text, i, separator):
    """A whole number, perhaps quoted or with zeros behind a point: where it ends, the number, and what is wrong."""
    n = len(text)
    quoted = text[i] == 34
    if quoted:
        i = _skip_blanks(text, i + 1, separator)
    negative = i < n and text[i] == 45
    if i < n and (text[i] == 45 or text[i] == 43):
        i += 1
    begin, value, large = i, 0, False
    while i < n and 48 <= text[i] <= 57:
        digit = np.int64(text[i]) - 48
        large = large or value > (LARGEST_ID - digit) // 10
        if not large:
            value = value * 10 + digit
        i += 1
    if i == begin:
        return i, 0, NUMBER
    if i < n and text[i] == 46:
        i += 1
        while i < n and text[i] == 48:
            i += 1
    if quoted:
        i = _skip_blanks(text, i, separator)
        if i == n or text[i] != 34:
            return i, 0, NUMBER
        i += 1
    if i < n and not (_is_end(text[i]) or text[i] == 32 or text[i] == 9 or text[i] == separator):
        return i, 0, NUMBER
    if negative and (value or large):
        return i, 0, NEGATIVE
    return i, value, LARGE if large else 0


@compiled
def read_pairs(text, separator, fields, source, destination, weight, base, limit, src, dst, weights):
    """Read lines with an edge each.

    Returns the place and number of lines before the first bad line, and of edges; what is wrong with it, and what was
    seen: a column from 1, the number of columns, or an id.
    """
    n, at, lines, count = len(text), 0, 0, 0
    while at < n:
        i = _skip_blanks(text, at, separator)
        if i == n or _is_end(text[i]) or text[i] == 35 or text[i] == 37:  # blank, or a comment: # %
            i = _line_end(text, i)
            at = _after_end(text, i)
            lines += 1
            continue
        column, found, number, begin, missing = 0, 0, 0, i, False
        while True:
            i = _skip_blanks(text, i, separator)
            ended = i == n or _is_end(text[i])
            if separator == 0 and (ended or text[i] == 35 or text[i] == 37):
                break
            if ended:  # nothing between the last separator and the line end
                missing, column = True, column + 1
                break
            if column == source or column == destination:  # noqa: SIM109 (numba)
                i, number, problem = _whole_number(text, i, separator)
                if problem == 0 and number < base:
                    problem = NEGATIVE
                if problem:
                    return at, count, lines, problem, column + 1
                if number - base >= limit:
                    return at, count, lines, LIMIT, number
                if column == source:
                    src[count] = number - base
                if column == destination:
                    dst[count] = number - base
                found += 1
            else:
                begin = i
                i = _skip_field(text, i, separator)
                if i < 0:
                    return at, count, lines, QUOTE, column + 1
                if column == weight:
                    if i == begin or i - begin > weights.shape[1]:
                        return at, count, lines, WEIGHT, column + 1
                    for k in range(begin, i):
                        weights[count, k - begin] = text[k]
            column += 1
            i = _skip_blanks(text, i, separator)
            if i == n or _is_end(text[i]) or text[i] == 35 or text[i] == 37:
                break
            if separator != 0:
                if text[i] != separator:
                    return at, count, lines, NUMBER, column
                i += 1
        if column != fields and not (missing and column - 1 == fields):
            return at, count, lines, WIDTH, column
        if found < 2:
            return at, count, lines, NUMBER, column
        count += 1
        i = _line_end(text, i)
        at = _after_end(text, i)
        lines += 1
    return at, count, lines, 0, 0


@compiled
def read_neighbours(text, node, num_nodes, before, step, src, dst):
    """Read lines of a METIS file, from that of `node`: place, edges, lines and nodes, and whether a line is bad."""
    n, at, lines, count = len(text), 0, 0, 0
    while at < n:
        i = at
        if text[i] == 37:
            at = _after_end(text, _line_end(text, i))
            lines += 1
            continue
        column = 0
        while True:
            i = _skip_blanks(text, i, 0)
            if i == n or _is_end(text[i]):
                break
            i, number, problem = _whole_number(text, i, 0)
            neighbour = column >= before and (column - before) % step == 0
            if problem or node >= num_nodes or (neighbour and (number < 1 or number > num_nodes)):
                return at, count, lines, node, True
            if neighbour:
                src[count], dst[count] = node, number - 1
                count += 1
            column += 1
        if (column < before and node < num_nodes) or (column > before and (column - before) % step):
            return at, count, lines, node, True
        node += node < num_nodes
        at = _after_end(text, i)
        lines += 1
    return at, count, lines, node, False
