//! Sums of doubles without rounding on the way, so that the order of the terms decides nothing.

/// The sum of all numbers, rounded once, to nearest-even. (Shewchuk 1997, "Adaptive Precision Floating-Point
/// Arithmetic", section 2; the last rounding as in Python's `math.fsum`, whose result this is)
pub(crate) fn exact_sum(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut partials: Vec<f64> = Vec::new(); // without overlap, in rising magnitude; their exact sum is the sum so far
    let mut special = 0.0; // infinities and NaN need no exactness
    for number in numbers {
        if !number.is_finite() {
            special += number;
            continue;
        }
        let mut x = number;
        let mut kept = 0;
        for at in 0..partials.len() {
            let mut y = partials[at];
            if x.abs() < y.abs() {
                std::mem::swap(&mut x, &mut y);
            }
            let high = x + y;
            let low = y - (high - x);
            if low != 0.0 {
                partials[kept] = low;
                kept += 1;
            }
            x = high;
        }
        partials.truncate(kept);
        partials.push(x);
    }
    if special != 0.0 {
        return special;
    }
    let Some(mut high) = partials.pop() else { return 0.0 };
    while let Some(next) = partials.pop() {
        let x = high;
        high = x + next;
        let low = next - (high - x);
        if low != 0.0 {
            // Half-way cases are decided by the sign of what lies below them.
            if partials.last().is_some_and(|below| (low < 0.0) == (*below < 0.0)) {
                let doubled = low * 2.0;
                let rounded = high + doubled;
                if doubled == rounded - high {
                    high = rounded;
                }
            }
            break;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::exact_sum;

    #[test]
    fn sums_are_rounded_once() {
        // Expected values are Python's math.fsum.
        assert_eq!(exact_sum([]), 0.0);
        assert_eq!(exact_sum([0.1; 10]), 1.0);
        assert_eq!(exact_sum([1e100, 1.0, -1e100]), 1.0);
        assert_eq!(exact_sum([1.0, 2f64.powi(-53), 2f64.powi(-106)]), 1.0 + f64::EPSILON);
        assert_eq!(exact_sum([1.0, 2f64.powi(-53)]), 1.0);
        assert_eq!(exact_sum([-1.0, -(2f64.powi(-53)), -(2f64.powi(-106))]), -1.0 - f64::EPSILON);
        assert!(exact_sum([1.0, f64::NAN]).is_nan());
        assert_eq!(exact_sum([1.0, f64::INFINITY, 2.0]), f64::INFINITY);
    }
}
