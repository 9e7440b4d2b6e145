"""The search for the smallest number of micro-batches that fit.

A lower bound comes from the most expensive seeds; from the estimates so far, the search guesses which number to try
next, because more parts are not always smaller.
"""
