r"""What a program and its proof ask of all variables, in one loop each: boxes, sums, extremes, multipliers, losses.

Long sums are kept in eight lanes, v in lane v modulo 8: what rounding does to one is at most m / 8 + 8 times the last
digit of the sum of sizes. `exact_sum` is rounded once.

References
----------
Shewchuk (1997), Adaptive precision floating-point arithmetic and fast robust geometric predicates, section 2.5: sums
as numbers whose digits do not overlap, as in Python's `math.fsum`.
"""

import numpy as np

from svmcore.runtime.compiled import njit, njit_sums

__all__ = [
    "MENDING_STEPS",
    "ROUNDED_SUM",
    "bends",
    "bent_multiplier",
    "beyond_bounds",
    "box_of_labels",
    "boxes",
    "clipped",
    "costs_of_labels",
    "dual_sums",
    "exact_sum",
    "group_ends",
    "jump_multiplier",
    "losses",
    "mend",
    "no_more_than",
    "prove_each",
    "two_sum",
    "weighted",
    "widened",
]

LANES = 8
EPS = 2.0**-52
MENDING_STEPS = 8  # each leaves a rounding error of what the one before has left
ROUNDED_SUM = 1e-12  # of ||beta||_1: what rounding may leave of a sum


# ---- exact sums
@njit
def two_sum(a, b):  # type: ignore[no-untyped-def]
    """(a + b rounded, what that rounds away), exactly (Knuth)."""
    total = a + b
    moved = total - a
    return total, (a - (total - moved)) + (b - moved)


@njit
def _rounded(partials, n):  # type: ignore[no-untyped-def]
    """Sum of numbers that do not overlap, the smallest first, rounded to even once."""
    if n == 0:
        return 0.0
    n -= 1
    total, rest = partials[n], 0.0
    while n > 0 and rest == 0.0:
        n -= 1
        total, rest = two_sum(total, partials[n])
    if n > 0 and rest * np.sign(partials[n - 1]) > 0.0:  # it may be half a digit, and what is below it decides
        up, lost = two_sum(total, 2.0 * rest)
        if lost == 0.0:
            return up
    return total


@njit
def _without_overlap(values, n):  # type: ignore[no-untyped-def]
    """Turn the first n of `values` into numbers with the same sum that do not overlap, the smallest first: how many."""
    kept = 0
    for v in range(n):
        x, before, kept = values[v], kept, 0
        for i in range(before):
            x, rest = two_sum(x, values[i])
            if rest != 0.0:
                values[kept], kept = rest, kept + 1
        values[kept], kept = x, kept + 1
    return kept


@njit(makes_arrays=True)
def exact_sum(values, last):  # type: ignore[no-untyped-def]
    """Sum of the float64 `values` (n,) and of `last`, rounded once.

    What an addition loses is added to a second sum, what that loses to a third; few sums lose anything there.
    """
    total, second, third, left, n = last, 0.0, 0.0, np.empty(len(values) + 3), 0
    for v in range(len(values)):
        total, rest = two_sum(total, values[v])
        second, rest = two_sum(second, rest)
        third, rest = two_sum(third, rest)
        if rest != 0.0:
            left[n], n = rest, n + 1
    left[n], left[n + 1], left[n + 2] = third, second, total
    return _rounded(left, _without_overlap(left, n + 3))


@njit(makes_arrays=True)
def beyond_bounds(parts, of, bounds):  # type: ignore[no-untyped-def]
    """What the `parts` (n,) of number `of` (n,) come to beyond each of the bounds (m,), rounded once; 0 of one part."""
    found, ends, sorted_parts = np.zeros(len(bounds)), np.zeros(len(bounds) + 1, np.int64), np.empty(len(parts))
    for c in range(len(parts)):
        ends[of[c] + 1] += 1
    for v in range(len(bounds)):
        ends[v + 1] += ends[v]
    places = ends[:-1].copy()
    for c in range(len(parts)):
        sorted_parts[places[of[c]]] = parts[c]
        places[of[c]] += 1
    for v in range(len(bounds)):
        if ends[v + 1] - ends[v] > 1 and abs(bounds[v]) < np.inf:
            found[v] = exact_sum(sorted_parts[ends[v] : ends[v + 1]], -bounds[v])
    return found


@njit
def mend(beta, lo, hi, total, most):  # type: ignore[no-untyped-def]
    """Move free variables of `beta` (m,), at most `most` times, until it sums to `total`: exactly, if digits allow.

    A variable of the size of the largest takes most of what is missing, one with finer digits the rest; of equal ones
    that with most room.
    """
    for _ in range(most):
        missing = -exact_sum(beta, -total)
        best, left, widest = -1, abs(missing), 0.0
        for v in range(len(beta)):
            room = min(beta[v] - lo[v], hi[v] - beta[v])
            lost = abs(two_sum(beta[v], missing)[1])
            if room > abs(missing) and (lost < left or (lost == left and best >= 0 and room > widest)):
                best, left, widest = v, lost, room
        if best < 0:
            break
        beta[best] += missing


# ---- boxes
@njit
def boxes(lo, hi, ridge, codes, least, most):  # type: ignore[no-untyped-def]
    """Write sums of the bounds of each group to `least` and `most` (k,).

    Returns
    -------
    (valid, hard, soft, steepest)
        Whether lo <= hi and ridge >= 0 throughout, whether a variable has neither a bound on some side nor a ridge,
        whether one has a ridge, and the sum of the largest sizes that the boxes allow.
    """
    valid, hard, soft, steepest = True, False, False, 0.0
    for v in range(len(lo)):
        valid &= (lo[v] <= hi[v]) & (ridge[v] >= 0.0)
        hard |= (ridge[v] == 0.0) & (np.isinf(lo[v]) | np.isinf(hi[v]))
        soft |= ridge[v] != 0.0
        steepest += max(abs(lo[v]), abs(hi[v]))
        if codes[v] >= 0:
            least[codes[v]] += lo[v]
            most[codes[v]] += hi[v]
    return valid, hard, soft, steepest


@njit
def no_more_than(values, largest):  # type: ignore[no-untyped-def]
    """Whether all `values` are numbers up to `largest`."""
    found = True
    for v in range(len(values)):
        found &= -np.inf < values[v] <= largest
    return found


@njit
def costs_of_labels(y, C):  # type: ignore[no-untyped-def]
    """(whether labels are -1, +1 or 0, whether no cost is negative and one is positive); C of a 0 becomes 0."""
    signs, negative, positive = True, False, False
    for v in range(len(y)):
        signs &= (abs(y[v]) == 1.0) | (y[v] == 0.0)
        negative |= not C[v] >= 0.0  # nor is a NaN
        positive |= C[v] > 0.0
        C[v] = C[v] if y[v] != 0.0 else 0.0
    return signs, positive and not negative


@njit
def box_of_labels(y, upper, p, lo, hi):  # type: ignore[no-untyped-def]
    """The box of each label: [0, upper] for +1, [-upper, 0] for -1, nothing for 0; p is the label, or -1."""
    for v in range(len(y)):
        p[v] = y[v] if y[v] != 0.0 else -1.0
        lo[v] = -upper[v] if y[v] < 0.0 and upper[v] != 0.0 else 0.0  # no negative zeros
        hi[v] = upper[v] if y[v] > 0.0 else 0.0


@njit(makes_arrays=True)
def clipped(beta, lo, hi, codes, sums, sizes):  # type: ignore[no-untyped-def]
    """The `beta` (m,) of the box that is nearest to a given one; sums and sizes of its groups go to (k,) each."""
    found = np.empty(len(beta))
    for v in range(len(beta)):
        found[v] = b = min(max(beta[v], lo[v]), hi[v])
        if codes[v] >= 0:
            sums[codes[v]] += b
            sizes[codes[v]] += abs(b)
    return found


@njit
def widened(beta, lo, hi, new_lo, new_hi):  # type: ignore[no-untyped-def]
    """How many times as wide the widest box has become; 0 where one shrank, or `beta` is at a bound that has moved."""
    wider = 1.0
    for v in range(len(beta)):
        if not (new_lo[v] <= lo[v] and new_hi[v] >= hi[v]):
            return 0.0
        if (beta[v] == lo[v] and lo[v] != new_lo[v]) or (beta[v] == hi[v] and hi[v] != new_hi[v]):
            return 0.0
        if hi[v] > lo[v]:
            wider = max(wider, (new_hi[v] - new_lo[v]) / (hi[v] - lo[v]))
    return wider


# ---- scores
@njit
def _ends_of(code, score, error, beta, lo, hi, codes):  # type: ignore[no-untyped-def]
    """A row of `group_ends`: of the variables with this code."""
    up, low, far_up, far_low, total, free = -np.inf, np.inf, -np.inf, np.inf, 0.0, 0.0
    for v in range(len(score)):
        if codes[v] != code:
            continue
        s, e, grows, shrinks = score[v], error[v], beta[v] < hi[v], beta[v] > lo[v]
        if grows:
            up, far_up = max(up, s), max(far_up, s + e)
        if shrinks:
            low, far_low = min(low, s), min(far_low, s - e)
        if grows and shrinks:
            total, free = total + s, free + 1.0
    return up, low, far_up, far_low, total, free


@njit
def group_ends(score, error, beta, lo, hi, codes, ends):  # type: ignore[no-untyped-def]
    """Write to `ends` (k + 1, 6) what decides the gap of each group, last of the variables in none.

    It is the largest score that may grow and the smallest that may shrink; both again where scores are off by `error`,
    as far apart as that allows; sum and number of the scores of free variables.

    Returns
    -------
    (outside, known)
        How far the worst variable is outside its box, and whether all scores are numbers.
    """
    for g in range(len(ends)):
        code = g if g < len(ends) - 1 else -1
        found = _ends_of(code, score, error, beta, lo, hi, codes)  # one by one: a whole row takes numba a second more
        ends[g, 0], ends[g, 1], ends[g, 2], ends[g, 3], ends[g, 4], ends[g, 5] = found
    outside, known = 0.0, True
    for v in range(len(score)):
        outside = max(outside, max(lo[v] - beta[v], beta[v] - hi[v]))
        known &= abs(score[v]) < np.inf
    return outside, known


@njit(makes_arrays=True)
def jump_multiplier(p, output, lo, hi, codes, g, total):  # type: ignore[no-untyped-def]
    """The b at which sum_v h_v(t_v - b) + b total is least over the group `g`, t = p - output; no variable has a ridge.

    Its slope, total - sum_v hi_v before all t_v, jumps by hi_v - lo_v at each: b is where it reaches 0, the last t_v
    where it never does. It is found by parting the t_v at one of them, over and over.
    """
    place, jump, n, slope = np.empty(len(p)), np.empty(len(p)), 0, total
    for v in range(len(p)):
        if codes[v] != g:
            continue
        slope -= hi[v]
        t = p[v] - output[v]
        if hi[v] > lo[v] and abs(t) < np.inf:
            place[n], jump[n], n = t, hi[v] - lo[v], n + 1
    first, end, found, draw = 0, n, 0.0, np.uint64(n)
    while first < end:
        draw = draw * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)  # no order of rows makes it slow
        found = place[first + np.int64((draw >> np.uint64(33)) % np.uint64(end - first))]
        below, above, less, equal = _parted(place, jump, first, end, found)
        if below > first and slope + less >= 0.0:
            end = below
        elif slope + less + equal >= 0.0:
            break
        else:
            first, slope = above, slope + less + equal
    return found


@njit(makes_arrays=True)
def bends(t, lo, hi, ridge, codes, g, total):  # type: ignore[no-untyped-def]
    """Where the slope total - sum_v h'_v(t_v - b) of the group `g` changes in b, if no variable is without any bound.

    Returns
    -------
    (place, jump, bend, value, grade)
        Places (k,), by what the slope jumps there, and by what its own slope changes; what the slope has of variables
        that cannot move, and its own slope before all places.
    """
    place, jump, bend, n, value, grade = np.empty(2 * len(t)), np.zeros(2 * len(t)), np.zeros(2 * len(t)), 0, total, 0.0
    for v in range(len(t)):
        if codes[v] != g:
            continue
        if not hi[v] > lo[v]:
            value -= lo[v]
        elif ridge[v] == 0.0:
            if abs(t[v]) < np.inf:
                place[n], jump[n], n = t[v], hi[v] - lo[v], n + 1
        else:
            for bound, sign in ((hi[v], 1.0), (lo[v], -1.0)):
                at = t[v] - ridge[v] * bound
                if abs(at) < np.inf:
                    place[n], bend[n], n = at, sign / ridge[v], n + 1
                elif at == -np.inf:
                    grade += sign / ridge[v]
    return place[:n], jump[:n], bend[:n], value, grade


@njit
def _slope_before(b, value, t, lo, hi, ridge, codes, g):  # type: ignore[no-untyped-def]
    """The slope of `bends` at b, at or before the first place: without a ridge h'_v is hi there."""
    for v in range(len(t)):
        if codes[v] == g and hi[v] > lo[v]:
            value -= min(max((t[v] - b) / ridge[v], lo[v]), hi[v]) if ridge[v] > 0.0 else hi[v]
    return value


@njit
def bent_multiplier(order, place, jump, bend, value, grade, t, lo, hi, ridge, codes, g):  # type: ignore[no-untyped-def]
    """The b at which the slope of `bends` passes 0; `order` sorts the places."""
    first = place[order[0]] if len(order) else 0.0  # of no places no output is finite, or no variable has a bound
    value = _slope_before(first, value, t, lo, hi, ridge, codes, g)
    if value >= 0.0 or not len(order):
        return first - value / grade if grade > 0.0 else first
    last = first
    for k in order:
        ahead = value + grade * (place[k] - last)
        if ahead > 0.0:
            break
        value, grade, last = ahead + jump[k], grade + bend[k], place[k]
        if value >= 0.0:
            return last
    return last - value / grade if grade > 0.0 else place[order[-1]]  # it never does, but by rounding


@njit
def _parted(place, jump, first, end, at):  # type: ignore[no-untyped-def]
    """Bring places before, at and after `at` together: (first that is not before, first after, jumps before, at)."""
    below, above, v, less, equal = first, end, first, 0.0, 0.0
    while v < above:
        if place[v] < at:
            less += jump[v]
            place[v], place[below] = place[below], place[v]
            jump[v], jump[below] = jump[below], jump[v]
            below, v = below + 1, v + 1
        elif place[v] > at:
            above -= 1
            place[v], place[above] = place[above], place[v]
            jump[v], jump[above] = jump[above], jump[v]
        else:
            equal, v = equal + jump[v], v + 1
    return below, above, less, equal


# ---- objectives
@njit(makes_arrays=True)
def dual_sums(p, ridge, beta):  # type: ignore[no-untyped-def]
    """(p'beta, sum_v ridge_v beta_v^2, abs(p)'abs(beta))."""
    sums = np.zeros((3, LANES))
    for v in range(len(p)):
        lane, term = v & (LANES - 1), p[v] * beta[v]
        sums[0, lane] += term
        sums[1, lane] += ridge[v] * beta[v] * beta[v]
        sums[2, lane] += abs(term)
    return sums[0].sum(), sums[1].sum(), sums[2].sum()


@njit(makes_arrays=True)
def weighted(weights, errors):  # type: ignore[no-untyped-def]
    """Sum of the errors (n,) with the sizes of their weights; one without a weight may be infinite."""
    sums = np.zeros(LANES)
    for v in range(len(weights)):
        if weights[v] != 0.0:
            sums[v & (LANES - 1)] += abs(weights[v]) * errors[v]
    return sums.sum()


@njit
def _slope(residual, lo, hi, ridge):  # type: ignore[no-untyped-def]
    """h'_v: the t of the box at which r t - ridge t^2 / 2 is largest."""
    t = hi if residual > 0.0 else lo if residual < 0.0 else 0.0
    return min(max(residual / ridge if ridge > 0.0 else t, lo), hi)


@njit(makes_arrays=True)
def losses(p, output, error, lo, hi, ridge, codes, multipliers, scale):  # type: ignore[no-untyped-def]
    """Of the residuals r = p - scale (output + b), b the multiplier (k + 1,) of a variable's group, the last for none.

    Returns
    -------
    (loss, sizes, doubt)
        sum_v h_v(r_v), where variables without bound and ridge have no loss; of the residuals at scale 1 and their
        steepest slopes h' within e, those that are finite: the sums of abs(h' r) and abs(h') e. Here e is the `error`
        (m,) of an output, and what rounding output + b takes.
    """
    sums = np.zeros((3, LANES))
    for v in range(len(p)):
        f, lane, free = output[v] + multipliers[codes[v]], v & (LANES - 1), ridge[v] == 0.0
        r = 0.0 if free and (np.isinf(lo[v]) or np.isinf(hi[v])) else p[v] - scale * f
        t = _slope(r, lo[v], hi[v], ridge[v])
        sums[0, lane] += r * t - 0.5 * ridge[v] * t * t
        r, e = p[v] - f, error[v] + 0.5 * EPS * abs(f)  # f was rounded too, and may be far larger than r
        steepest = max(abs(_slope(r + e, lo[v], hi[v], ridge[v])), abs(_slope(r - e, lo[v], hi[v], ridge[v])))
        if 0.0 < steepest < np.inf:
            sums[1, lane] += steepest * abs(r)
            sums[2, lane] += steepest * e
    return sums[0].sum(), sums[1].sum(), sums[2].sum()


# ---- all of it, of many small programs in one call
@njit
def prove_each(squares, ends, p, lo, hi, codes, sums, relative, absolute, beta, outputs, found):  # type: ignore[no-untyped-def]
    """What `svmcore.certificate.evaluate` finds, of programs whose variables are all in groups, on K in float64.

    Program k has the variables ends[k] ... ends[k + 1] - 1 of all (m,), and the sums `sums` (k, groups); none has a
    ridge. K of the variables of each is in `squares`, one after the other; its values are off by at most
    relative abs(K) + absolute. Mends `beta` (m,), writes `outputs` (m,) and to `found` (k, 7 + groups): primal, dual,
    KKT gap, infeasibility, uncertainty, bar, squared norm of w, multipliers.
    """
    done = 0
    for k in range(len(found)):
        at, q = slice(ends[k], ends[k + 1]), ends[k + 1] - ends[k]
        K = squares[done : done + q * q].reshape(q, q)
        done += q * q
        box, off = (p[at], lo[at], hi[at], codes[at], sums[k]), (relative, absolute)
        _prove(K, *box, *off, beta[at], outputs[at], found[k])


@njit(makes_arrays=True)
def _prove(K, p, lo, hi, codes, sums, relative, absolute, beta, output, found):  # type: ignore[no-untyped-def]
    m, none, missed, worst = len(p), np.zeros(len(p)), 0.0, 0.0
    for g in range(len(sums)):
        left = _mended(g, beta, lo, hi, codes, sums[g])
        missed, worst = missed + left, max(worst, left)
    error, length = np.empty(m), np.abs(beta).sum()
    _outputs_within(K, beta, relative, absolute, output, error)
    error += min(missed, ROUNDED_SUM * length) * _largest_of_diagonal(K)
    ends, score = np.empty((len(sums) + 1, 6)), p - output
    error += EPS * (np.abs(p) + np.abs(output))  # of that difference
    outside, known = group_ends(score, error, beta, lo, hi, codes, ends)
    best, gap, far, shift = np.zeros(len(sums) + 1), 0.0, 0.0, 0.0
    for g in range(len(sums)):
        best[g] = jump_multiplier(p, output, lo, hi, codes, g, sums[g])
        gap, far = max(gap, ends[g, 0] - ends[g, 1]), max(far, ends[g, 2] - ends[g, 3])
        shift += best[g] * sums[g]
        found[7 + g] = _multiplier(ends[g], best[g])
    norm2 = (beta * output).sum()
    loss, sizes, doubt = losses(p, output, error, lo, hi, none, codes, best, 1.0)
    linear, _, linear_sizes = dual_sums(p, none, beta)
    found[0], found[1], found[2] = 0.5 * norm2 + loss + shift, linear - 0.5 * norm2, gap if known else np.inf
    found[3], found[4] = max(outside, worst), far - gap
    found[5] = 0.5 * weighted(beta, error) + doubt + EPS * (m / 8.0 + 8.0) * (sizes + linear_sizes)
    found[6] = norm2


@njit(makes_arrays=True)
def _mended(g, beta, lo, hi, codes, total):  # type: ignore[no-untyped-def]
    """Mend the variables of group `g`: how far their sum is off then."""
    at = np.flatnonzero(codes == g)
    part = beta[at]
    mend(part, lo[at], hi[at], total, MENDING_STEPS)
    beta[at] = part
    return abs(exact_sum(part, -total))


@njit(makes_arrays=True)
def _outputs_within(K, beta, relative, absolute, output, error):  # type: ignore[no-untyped-def]
    """K beta (m,), and a bound (m,) of its error: of the values and of the sums."""
    support = np.flatnonzero(beta)
    weights = beta[support]
    length, rounded = np.abs(weights).sum(), EPS * (len(support) + 1.0)
    for v in range(len(K)):
        output[v], size = _weighted_row(K[v], support, weights)
        error[v] = rounded * size + (relative * size + absolute * length) / (1.0 - relative)


@njit_sums
def _weighted_row(row, columns, weights):  # type: ignore[no-untyped-def]
    """(sum_j row_(columns j) weights_j, the same of sizes)."""
    total, size = 0.0, 0.0
    for at in range(len(columns)):
        term = row[columns[at]] * weights[at]
        total += term
        size += abs(term)
    return total, size


@njit
def _largest_of_diagonal(K):  # type: ignore[no-untyped-def]
    largest = 0.0
    for v in range(len(K)):
        largest = max(largest, abs(K[v, v]))
    return largest


@njit
def _multiplier(ends, best):  # type: ignore[no-untyped-def]
    """As `svmcore.outputs.multipliers_of`: the mean of free scores, else the middle of the ends, else the best."""
    if ends[5] > 0.0:
        return ends[4] / ends[5]
    return 0.5 * (ends[0] + ends[1]) if ends[0] > -np.inf and ends[1] < np.inf else best
