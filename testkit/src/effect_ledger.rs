//! Counts outside effects by key and compares them with those that should have happened: each once, none lost, none
//! invented.
//!
//! It knows neither where the effects are stored nor what their keys mean.

use std::collections::{BTreeMap, BTreeSet};

/// How often each effect happened.
#[derive(Clone, Debug)]
pub struct EffectLedger<K>(BTreeMap<K, u64>);

/// Where effects and expectations differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EffectDifferences<K> {
    /// Expected, but did not happen.
    pub lost: Vec<K>,
    /// Happened more than once, and how often.
    pub doubled: Vec<(K, u64)>,
    /// Happened, but nobody expected it.
    pub invented: Vec<K>,
}

impl<K> Default for EffectLedger<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Clone + Ord> EffectLedger<K> {
    pub fn record(&mut self, key: K, times: u64) {
        *self.0.entry(key).or_default() += times;
    }

    pub fn times(&self, key: &K) -> u64 {
        self.0.get(key).copied().unwrap_or_default()
    }

    /// How many effects happened, each counted as often as it happened.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The effects that happened more than once, and how often.
    pub fn doubled(&self) -> impl Iterator<Item = (&K, u64)> {
        self.0.iter().map(|(key, times)| (key, *times)).filter(|(_, times)| *times > 1)
    }

    pub fn compare(&self, expected: impl IntoIterator<Item = K>) -> EffectDifferences<K> {
        let expected: BTreeSet<K> = expected.into_iter().collect();
        let happened = || self.0.iter().filter(|(_, times)| **times > 0).map(|(key, _)| key);
        EffectDifferences {
            lost: expected.iter().filter(|key| self.times(key) == 0).cloned().collect(),
            doubled: self.doubled().map(|(key, times)| (key.clone(), times)).collect(),
            invented: happened().filter(|key| !expected.contains(key)).cloned().collect(),
        }
    }
}

impl<K> EffectDifferences<K> {
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.doubled.is_empty() && self.invented.is_empty()
    }
}

impl<K: Clone + Ord> FromIterator<K> for EffectLedger<K> {
    fn from_iter<I: IntoIterator<Item = K>>(effects: I) -> Self {
        let mut ledger = Self::default();
        effects.into_iter().for_each(|key| ledger.record(key, 1));
        ledger
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_found() {
        let ledger: EffectLedger<char> = "abbd".chars().collect();
        let differences = ledger.compare(['a', 'b', 'c']);
        let expected = EffectDifferences { lost: vec!['c'], doubled: vec![('b', 2)], invented: vec!['d'] };
        assert_eq!(differences, expected);
        assert_eq!(ledger.total(), 4);
        assert!(!differences.is_empty() && ledger.compare(['b']).lost.is_empty());
        assert!("ab".chars().collect::<EffectLedger<_>>().compare(['b', 'a']).is_empty());
    }
}
