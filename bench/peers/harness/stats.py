"""Medians, spread, percentiles. Pure."""

from statistics import median


def middle(values):
    """The median; None for none."""
    values = [value for value in values if value is not None]
    return median(values) if values else None


def spread(values):
    """Half of the distance from the lowest to the highest, as a share of the median; None for fewer than two."""
    values = [value for value in values if value is not None]
    if len(values) < 2 or not median(values):
        return None
    return (max(values) - min(values)) / 2 / median(values)


def span(values):
    """(lowest, highest); None for fewer than two."""
    values = [value for value in values if value is not None]
    return (min(values), max(values)) if len(values) > 1 else None


def percentile(values, share):
    """The smallest value that at least `share` of all do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    at = -(-len(ordered) * share // 1)
    return ordered[min(len(ordered) - 1, max(0, int(at) - 1))]


def ratio(one, other):
    return one / other if one is not None and other else None
