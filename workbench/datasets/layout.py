"""The arrays of a data set in one file, NAME.npz, in words; docs/data.md shows the same."""

ARRAYS = (
    ("edge_index, num_nodes", "integers [2, edges], row 0 source and row 1 destination; number of nodes"),
    ("x", "features [num_nodes, width]; or sparse ones as x_indptr, x_indices, x_data, x_shape (CSR)"),
    (
        "y",
        "class ids [num_nodes] or [num_nodes, 1], -1 or NaN for unlabelled; or several labels per node as 0 and 1 "
        "[num_nodes, classes], not one-hot; optional class_names",
    ),
    (
        "train_idx, val_idx, test_idx",
        "node ids of the split, each node once; or several splits as train_masks, val_masks, test_masks "
        "[splits, num_nodes], bool",
    ),
    ("valid_edge, valid_edge_neg, test_edge, test_edge_neg", "edges [2, any] for link prediction"),
)
"""Names of arrays, and their contents."""

KNOWLEDGE_GRAPH = (
    "A knowledge graph has train, valid and test [any, 3] (head, relation, tail), num_entities, num_relations and, "
    "optionally, entity_names and relation_names."
)
OPTIONAL = "All arrays but edge_index and num_nodes are optional; another name is an error."
