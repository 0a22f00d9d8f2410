"""How an order is dealt to shards, and woven of them: by plain lists."""


def dealt(ids, shard, num_shards, offset):
    """Deals a list like cards: row g goes to shard (g + offset) mod num_shards; offset -1 fills all up."""
    if offset < 0:
        rows = -(-len(ids) // num_shards)
        return [ids[(row * num_shards + shard) % len(ids)] for row in range(rows)]
    return [id for row, id in enumerate(ids) if (row + offset) % num_shards == shard]


def cut(rows, lanes):
    """Cuts rows into contiguous runs, the first len(rows) mod lanes of them one row longer."""
    length, longer = divmod(len(rows), lanes)
    runs, start = [], 0
    for lane in range(lanes):
        end = start + length + (lane < longer)
        runs.append(rows[start:end])
        start = end
    return runs


def woven(runs):
    longest = max(len(run) for run in runs)
    return [run[row] for row in range(longest) for run in runs if row < len(run)]
