//! Access control: the initiators that may log in, and their authentication.

/// Authentication of initiators, and of the target towards them. Indices are into
/// [`Node::accounts`](super::Node::accounts).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// The accounts that may log in. Empty: any initiator may, without authentication.
    pub accounts: Vec<usize>,
    /// The target's own account, for initiators that request mutual CHAP.
    pub mutual: Option<usize>,
}

/// A list of initiators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Initiators(Vec<String>);

impl Initiators {
    /// Initiators by iSCSI name, in lower case; an entry that ends in `*` matches all names with that prefix. An
    /// empty list matches all initiators.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether the initiator with this name, in lower case, is in the list.
    pub fn admit(&self, name: &str) -> bool {
        let matches = |entry: &String| match entry.strip_suffix('*') {
            Some(front) => name.starts_with(front),
            None => name == entry,
        };
        self.0.is_empty() || self.0.iter().any(matches)
    }

    /// The entries.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

/// A redirection (RFC 7143 section 11.13.5, status class 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The portal to use, as `host:port`.
    pub portal: String,
    /// Whether the redirection is permanent.
    pub permanent: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole names, beginnings, and the empty list that stands for everyone.
    #[test]
    fn names_match_whole_or_by_their_beginning() {
        let list = |names: &[&str]| Initiators::new(names.iter().map(|&name| name.to_owned()));
        assert!(list(&[]).admit("iqn.a"));
        let some = list(&["IQN.2026-01.a:one", "iqn.2026-01.b:*"]);
        assert!(some.admit("iqn.2026-01.a:one") && some.admit("iqn.2026-01.b:two"));
        assert!(!some.admit("iqn.2026-01.a:one.more") && !some.admit("iqn.2026-01.b"));
    }
}
