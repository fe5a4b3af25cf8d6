//! Scans past damage: returns the readable rows page by page and, between the pages, the ranges that cannot be read.
//!
//! A plain scan that meets damage fails without rows, because rows with a gap would be mistaken for all rows. Callers
//! that tolerate a gap, and report it, scan here. Nothing is guessed: no row of a damaged range is returned, not even
//! one that an older file may still have.
//!
//! This module knows nothing of files. It finds the ends of a damaged range by scanning other ranges, about ten for
//! each byte of a key. If two damaged ranges are closer together than the first is wide, the rows between them may be
//! skipped too.

use std::fmt;
use std::ops::Bound;

use super::{Direction, Key, Partition, PrivateRows, Scan, ScanPage, StoreError};

/// A page of readable rows, or a damaged range that was skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TolerantPage {
    /// The rows, and the scan of the remaining rows.
    pub page: ScanPage,
    /// The damaged range that the remaining scan begins after, if there is one. The page has no rows then.
    pub damage: Option<DamagedRange>,
}

/// A range of keys that cannot be read. There may be rows in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedRange {
    /// The beginning of the range, as far as it is inside the scan.
    pub from: Bound<Key>,
    /// The end of the range. It is the same for every scan that meets the range, and so identifies the range.
    pub until: Bound<Key>,
    /// The error of the backend.
    pub reason: String,
}

impl fmt::Display for DamagedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = |bound: &Bound<Key>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.to_string(),
            Bound::Unbounded => "the end".to_owned(),
        };
        match (&self.from, &self.until) {
            (from, until) if from == until => write!(f, "row {}", key(from))?,
            (Bound::Unbounded, until) => write!(f, "rows up to {}", key(until))?,
            (from, until) => write!(f, "rows from {} to {}", key(from), key(until))?,
        }
        write!(f, " cannot be read: {}", self.reason)
    }
}

/// Scans like [`PrivateRows::scan`], but skips damaged ranges. A backward scan still fails at damage.
pub async fn scan_past_damage<S: PrivateRows>(
    store: &S,
    partition: &Partition,
    scan: Scan,
) -> Result<TolerantPage, StoreError> {
    let error = match store.scan(partition, scan.clone()).await {
        Ok(page) => return Ok(TolerantPage { page, damage: None }),
        Err(error) => error,
    };
    let StoreError::Corrupt { key: before, reason, .. } = &error else { return Err(error) };
    if scan.direction == Direction::Backwards {
        return Err(error);
    }
    let mut search = DamageSearch { store, partition, scan, last_checked: None };
    let undamaged = |page: ScanPage| Ok(TolerantPage { page, damage: None });
    if !before.as_bytes().is_empty()
        && let Some(page) = search.rows_up_to(before).await?
    {
        return undamaged(page);
    }
    let start = match search.find_damage_start().await? {
        ScanStart::Rows(page) => return undamaged(page),
        ScanStart::DamageAfter(start) => start,
    };
    let until = match search.find_damage_end(start.clone()).await? {
        // The key can be read on its own, so there is no damaged range to skip.
        Some(end) if end == start && !search.first_key_is_damaged(&start).await? => return Err(error),
        Some(end) => Bound::Included(end.key()),
        None => Bound::Unbounded,
    };
    let from = match &search.scan.from {
        from if KeyNumber::from_bound(from) == start => from.clone(),
        _ => Bound::Excluded(start.key()),
    };
    let next = match &until {
        Bound::Included(end) => {
            let next = Scan { from: Bound::Included(next_key(end)), ..search.scan };
            Some(next).filter(|next| !next.is_empty())
        }
        _ => None,
    };
    let damage = DamagedRange { from, until, reason: reason.clone() };
    Ok(TolerantPage { page: ScanPage { rows: Vec::new(), next }, damage: Some(damage) })
}

struct DamageSearch<'s, S> {
    store: &'s S,
    partition: &'s Partition,
    scan: Scan,
    /// The last key that was checked on its own, and whether it is damaged: different key numbers may stand for one
    /// key.
    last_checked: Option<(Key, bool)>,
}

/// The beginning of a scan that fails.
enum ScanStart {
    Rows(ScanPage),
    /// There are no rows up to this key, and damage after it.
    DamageAfter(KeyNumber),
}

impl<S: PrivateRows> DamageSearch<'_, S> {
    /// Reads the rows up to a key; `None` if there are none or they cannot be read.
    async fn rows_up_to(&self, key: &Key) -> Result<Option<ScanPage>, StoreError> {
        let page = self.page_up_to(key).await?;
        Ok(page.filter(|page| !page.rows.is_empty()))
    }

    async fn page_up_to(&self, key: &Key) -> Result<Option<ScanPage>, StoreError> {
        let scan = Scan { until: Bound::Included(key.clone()), ..self.scan.clone() };
        let Some(mut page) = none_if_corrupt(self.store.scan(self.partition, scan).await)? else {
            return Ok(None);
        };
        page.next = page.rows.last().map(|last| self.scan.clone().resume_after(last.key.clone()));
        Ok(Some(page))
    }

    /// Finds the last key up to which the scan succeeds, unless there are rows before it. If a longer range can be
    /// read, so can every shorter one.
    async fn find_damage_start(&self) -> Result<ScanStart, StoreError> {
        let mut place = KeyNumber::from_bound(&self.scan.from);
        if !matches!(self.scan.from, Bound::Excluded(_))
            && let Some(rows) = self.rows_up_to(&place.key()).await?
        {
            return Ok(ScanStart::Rows(rows));
        }
        for bit in (0..KeyNumber::BITS).rev() {
            let Some(next) = place.plus_power_of_two(bit) else { continue };
            let key = next.key();
            if key != place.key() {
                let page =
                    if is_inside_bound(&key, &self.scan.until) { self.page_up_to(&key).await? } else { None };
                match page {
                    None => continue,
                    Some(page) if !page.rows.is_empty() => return Ok(ScanStart::Rows(page)),
                    Some(_) => {}
                }
            }
            place = next;
        }
        Ok(ScanStart::DamageAfter(place))
    }

    /// Finds the last key of the damage after `start`, by steps that double and then halve; `None` if the damage has no
    /// end.
    async fn find_damage_end(&mut self, start: KeyNumber) -> Result<Option<KeyNumber>, StoreError> {
        let mut reach = 0;
        loop {
            let Some(next) = start.plus_power_of_two(reach) else { return Ok(None) };
            if !self.damage_extends_to(&start, &next).await? {
                break;
            }
            reach += 1;
        }
        let mut place = start;
        for bit in (0..reach).rev() {
            if let Some(next) = place.plus_power_of_two(bit)
                && self.damage_extends_to(&place, &next).await?
            {
                place = next;
            }
        }
        Ok(Some(place))
    }

    /// True if the very first key of the scan is damaged.
    async fn first_key_is_damaged(&mut self, first: &KeyNumber) -> Result<bool, StoreError> {
        Ok(!matches!(self.scan.from, Bound::Excluded(_)) && self.is_damaged(&first.key()).await?)
    }

    /// True if the damage at `known` also covers `place`, which is a little further on.
    async fn damage_extends_to(&mut self, known: &KeyNumber, place: &KeyNumber) -> Result<bool, StoreError> {
        let key = place.key();
        Ok(known.key() == key || self.is_damaged(&key).await?)
    }

    async fn is_damaged(&mut self, key: &Key) -> Result<bool, StoreError> {
        if let Some((_, damaged)) = self.last_checked.as_ref().filter(|(checked, _)| checked == key) {
            return Ok(*damaged);
        }
        let only = Scan::between(Bound::Included(key.clone()), Bound::Included(key.clone())).limit(1);
        let damaged = none_if_corrupt(self.store.scan(self.partition, only).await)?.is_none();
        self.last_checked = Some((key.clone(), damaged));
        Ok(damaged)
    }
}

/// The key right after this one. Including it is not the same as excluding this one: a backend also reads the keys that
/// bound a scan.
fn next_key(key: &Key) -> Key {
    let mut bytes = key.as_bytes().to_vec();
    bytes.push(0);
    Key::new(bytes)
}

/// Turns damage into `None`; other errors stay errors.
fn none_if_corrupt(result: Result<ScanPage, StoreError>) -> Result<Option<ScanPage>, StoreError> {
    match result {
        Ok(page) => Ok(Some(page)),
        Err(StoreError::Corrupt { .. }) => Ok(None),
        Err(error @ StoreError::Unavailable { .. }) => Err(error),
    }
}

fn is_inside_bound(key: &Key, until: &Bound<Key>) -> bool {
    match until {
        Bound::Included(until) => key <= until,
        Bound::Excluded(until) => key < until,
        Bound::Unbounded => true,
    }
}

/// A key as a number, so that a search can halve the distance between two keys: the byte + 1 as a digit for each byte,
/// then 0 after the end of the key.
#[derive(Clone, PartialEq, Eq, Debug)]
struct KeyNumber(Vec<u16>);

impl KeyNumber {
    /// One digit for each byte of the longest key that every backend accepts.
    const DIGITS: usize = super::StoreLimits::GUARANTEED.key_bytes_max;
    const DIGIT_BITS: usize = 9;
    const BITS: usize = Self::DIGITS * Self::DIGIT_BITS;

    fn from_bound(bound: &Bound<Key>) -> Self {
        let bytes = match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.as_bytes(),
            Bound::Unbounded => &[],
        };
        let mut digits: Vec<u16> = bytes.iter().take(Self::DIGITS).map(|byte| u16::from(*byte) + 1).collect();
        digits.resize(Self::DIGITS, 0);
        Self(digits)
    }

    /// The greatest key that does not sort after this number. A digit too large for a byte stands for the greatest key
    /// that begins with the digits before it.
    fn key(&self) -> Key {
        let mut bytes = Vec::new();
        for digit in self.0.iter().take_while(|digit| **digit > 0) {
            let Ok(byte) = u8::try_from(digit - 1) else {
                bytes.resize(Self::DIGITS, u8::MAX);
                break;
            };
            bytes.push(byte);
        }
        Key::new(bytes)
    }

    /// This number plus two to the power of `bit`; `None` on overflow.
    fn plus_power_of_two(&self, bit: usize) -> Option<Self> {
        let mut digits = self.0.clone();
        let mut carry: u16 = 1 << (bit % Self::DIGIT_BITS);
        for digit in digits.iter_mut().rev().skip(bit / Self::DIGIT_BITS) {
            *digit += carry;
            carry = *digit >> Self::DIGIT_BITS;
            *digit &= (1 << Self::DIGIT_BITS) - 1;
            if carry == 0 {
                return Some(Self(digits));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
