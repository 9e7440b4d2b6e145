"""Forty faults of the kinds that people make, over all packages: what the tests must catch."""

from tests.mutations.plant import Mutation

MUTATIONS = (
    # core
    Mutation(
        "labels of a part reach into the next one",
        "_split_part",
        "scratch.base += count",
        "scratch.base += count - 1",
        ("test_split.py",),
    ),
    Mutation(
        "smoothed batches mix with the group before",
        "variates",
        "stream(seed, purpose, group + 1, layer)",
        "stream(seed, purpose, group - 1, layer)",
        ("test_variates.py", "test_dependence.py"),
    ),
    # sampling
    Mutation(
        "all layers of LABOR share one stream",
        "LaborSampler._draw",
        "shared = 0 if self.layer_dependency else layer",
        "shared = 0",
        ("test_labor.py",),
    ),
    Mutation(
        "the least x of one thread's copy alone",
        "_update_sources",
        "factor = min(factor, least[copy, t])",
        "factor = least[copy, t]",
        ("test_labor.py", "test_labor_statistics.py"),
    ),
    Mutation(
        "ids of reverse edges in the order of the edges",
        "_ids_of_both",
        "ids[order] + first_reverse_id(graph)",
        "ids + first_reverse_id(graph)",
        ("test_dense.py",),
    ),
    Mutation(
        "an excluded edge is drawn in place of the next",
        "skip_excluded",
        "(middle - first) <= rank",
        "(middle - first) < rank",
        ("test_candidates.py", "test_neighbor.py"),
    ),
    # partition
    Mutation(
        "a node leaves a part with its first pin",
        "_bytes_freed",
        "removed[node] == pin_count(pins, node, part)",
        "removed[node] <= pin_count(pins, node, part)",
        ("test_refine.py",),
    ),
    Mutation(
        "refinement ignores the limit of weights",
        "_best_move",
        "        if part_weight[other] + weight[seed] > max_part_weight:\n            continue\n",
        "",
        ("test_refine.py",),
    ),
    Mutation(
        "METIS without the weights of edges",
        "metis",
        '"edge_weights": edge_weight,',
        '"edge_weights": None,',
        ("test_metis.py", "test_reg.py"),
    ),
    # memory
    Mutation(
        "an estimate's error lowers what is required",
        "Budget.required_bytes",
        "(1 - self.error)",
        "(1 + self.error)",
        ("test_search.py",),
    ),
    Mutation(
        "bytes per edge over all edges",
        "_per_edge",
        "(whole_bytes - less) / (block.num_edges - kept)",
        "(whole_bytes - less) / block.num_edges",
        ("test_byte_costs.py",),
    ),
    # meter
    Mutation(
        "freeing a storage forgets another at its address",
        "AllocationTracker._release",
        "if self._tracked.get(tracked.key) is tracked:",
        "if tracked.key in self._tracked:",
        ("test_allocation_tracker.py", "test_peak.py", "test_peak_of_allocator.py", "test_peak_state.py"),
    ),
    # training
    Mutation(
        "a mean over this process's seeds alone",
        "BatchLoss.__call__",
        "(1.0 / self.divisor)",
        "(1.0 / self.weight)",
        ("test_batch_loss.py",),
    ),
    Mutation(
        "earlier gradients lost with a failed micro-batch",
        "isolated_backward",
        "        for leaf, grad in earlier:\n            leaf.grad = grad\n        raise",
        "        raise",
        ("test_isolated_backward.py",),
    ),
    Mutation(
        "statistics of a failed micro-batch stay",
        "snapshot_of_buffers",
        "            buffer.detach().copy_(value)\n",
        "",
        ("test_oom.py", "test_oom_exactness.py"),
    ),
    Mutation(
        "pieces of a piece refer to it instead of the batch",
        "_split",
        "replace(piece, parent=mb.parent[piece.parent])",
        "replace(piece, parent=piece.parent)",
        ("test_oom.py",),
    ),
    Mutation(
        "known triples compete",
        "_excluded",
        "    if known is None:\n        return own",
        "    if True:\n        return own",
        ("test_ranking.py",),
    ),
    # features
    Mutation(
        "stale rows in the cache after a write",
        "CachedRows.write",
        "            self._keep(torch.from_numpy(self._machine.query(wanted.numpy())), rows.detach())\n",
        "",
        ("test_cached_rows.py",),
    ),
    Mutation(
        "a cache is used after an interrupted replacement",
        "CachedRows._read",
        "        self._valid = False\n",
        "",
        ("test_cached_rows.py",),
    ),
    Mutation(
        "the last block of a record is not read",
        "_coalesce",
        "(starts[i] + record_bytes + block - 1) // block",
        "(starts[i] + record_bytes) // block",
        ("test_read_plan.py", "test_disk_rows.py"),
    ),
    Mutation(
        "values without their state after a failed write",
        "LearnedRows._write",
        "            self.values.write(ids, old_values)\n",
        "",
        ("test_learned_rows.py",),
    ),
    # outofcore
    Mutation(
        "buckets always in the first state that holds them",
        "_random_states",
        "first[wanted] + (variates * counts[wanted]).long()",
        "first[wanted]",
        ("test_orders.py",),
    ),
    Mutation(
        "written rows are not marked",
        "BufferRows.in_place",
        "        self._changed[partitions] = True\n",
        "",
        ("test_buffer_batches.py", "test_link_training.py"),
    ),
    Mutation(
        "damaged buckets are read",
        "EdgeBuckets._bucket",
        "if self._verify and checksum(own) != int(self._checksums[number]):",
        "if False:",
        ("test_store_damage.py",),
    ),
    # cooperative, distributed
    Mutation(
        "own rows lose their gradient in an exchange",
        "_Start.backward",
        "        owned[: len(grad_dst)] += grad_dst\n",
        "",
        ("test_on_ranks.py",),
    ),
    # macrobatch
    Mutation(
        "edges excluded from one mini-batch lack in all of its step",
        "_groups",
        "(step, rank, number) if len(excluded) else (step,)",
        "(step,)",
        ("test_relay.py",),
    ),
    # placement
    Mutation(
        "Algorithm 1 wastes a slot per round",
        "_trade",
        "per_round = n if printed else n - 1",
        "per_round = n",
        ("test_placement.py",),
    ),
    Mutation(
        "locality's mean divides by the edges drawn",
        "_weigh",
        "norm = count / degree",
        "norm = 1.0 / count",
        ("test_locality.py",),
    ),
    # kernels
    Mutation(
        "a NaN does not win the maximum",
        "_max_rows",
        "wins = (value > best[c]) | ((value != value) & (best[c] == best[c]))",
        "wins = value > best[c]",
        ("test_segment.py",),
    ),
    Mutation(
        "attention's gradient without the slope",
        "_score_gradients",
        "> 0 else value * slope",
        "> 0 else value",
        ("test_segment.py", "test_against_dgl.py"),
    ),
    # nn
    Mutation(
        "the same dropout mask in every step",
        "HashDropout._key",
        "Purpose.DROPOUT, step, self.layer",
        "Purpose.DROPOUT, 0, self.layer",
        ("test_dropout.py",),
    ),
    Mutation(
        "class weights left out of the divisor",
        "SeedLoss.weigh",
        "float(weight[classes].sum())",
        "float(count)",
        ("test_losses.py", "test_batch_loss.py"),
    ),
    # links
    Mutation(
        "a negative is drawn again once at most",
        "without_edges",
        "again = again[is_edge(nodes[again], row[again])]",
        "again = again[:0]",
        ("test_negatives.py",),
    ),
    # datasets
    Mutation(
        "labels permuted the other way",
        "permute_nodes",
        "dataset.y[old]",
        "dataset.y[new]",
        ("test_permute.py",),
    ),
    # standin
    Mutation(
        "a degree law without its half degree",
        "DegreeLaw.ranked",
        "[degree + 0.5 for degree, _ in self.knots]",
        "[float(degree) for degree, _ in self.knots]",
        ("test_standin.py",),
    ),
    # experiment, tracking
    Mutation(
        "a value that no grid offers is dropped",
        "_set_all",
        "[v for v in values if v in own or v not in offered]",
        "[v for v in values if v in own]",
        ("test_grid.py",),
    ),
    Mutation(
        "a case whose winner failed counts as won",
        "least",
        'changes = _change(rival, cases[winner]).fillna(float("inf"))',
        'changes = _change(rival, cases[winner]).fillna(float("-inf"))',
        ("test_claims.py",),
    ),
    Mutation(
        "a half-written line stays before the next run",
        "FileStore._append",
        "                file.truncate(file.seek(-len(tail), os.SEEK_END))",
        "                pass",
        ("test_file_store.py",),
    ),
    # interop, files
    Mutation(
        "rows and columns of a matrix are swapped",
        "from_scipy",
        "Graph.from_edges(rows.indices, rows.destinations,",
        "Graph.from_edges(rows.destinations, rows.indices,",
        ("test_scipy.py",),
    ),
    Mutation(
        "a lock on a deleted file counts",
        "locked",
        "            if acquired and not os.fstat(descriptor).st_nlink:\n                continue",
        "            if False:\n                continue",
        ("test_files.py",),
    ),
)
