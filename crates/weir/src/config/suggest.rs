//! "Did you mean …?": the nearest of some names.

/// The candidate that is nearest to `word`, if one is close enough to be a slip of the finger.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (word.chars().count().min(MAX_CHARS) / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|&(distance, _)| distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Longer words are compared up to here, so that a hostile file costs no quadratic time.
const MAX_CHARS: usize = 64;

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`, letter case
/// aside (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let fold = |text: &str| -> Vec<char> {
        text.chars().take(MAX_CHARS).map(|c| c.to_ascii_lowercase()).collect()
    };
    let (a, b) = (fold(a), fold(b));
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A missing letter, a swap and another letter case are slips; another word is not.
    #[test]
    fn slips_are_recognised() {
        let keys = ["block_size", "size", "file"];
        assert_eq!(nearest("blok_size", keys), Some("block_size"));
        assert_eq!(nearest("szie", keys), Some("size"));
        assert_eq!(nearest("FILE", keys), Some("file"));
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest("", keys), None);
    }
}
