//! Checks that the start withstands any snapshot: it is refused, or it is what was written.
//!
//! How: the first byte says what the others are: a file, the items of a file whose checksum is
//! right, or changes to a good file. What is read is loaded into partitions, and checks are decided
//! with it. Tests and the fuzz target `snapshot` compile this file.
//!
//! What it deliberately does not do: replace files (`tests/process/snapshot.rs`).

#![allow(unreachable_pub)] // the fuzz target reaches it

use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use crate::memory::{MemoryStore, PartitionWorker, load};
use crate::snapshot::{Block, Header, ReadError, Reader, SavedBucket, Writer, file_of};
use crate::{MemoryLimits, WhenFull};
use tollgate_limiter::{
    ALGORITHMS, Check, Hits, Key, Limit, Mark, Marks, REGISTER_MAX, State, Timestamp, Unit,
};
use tollgate_system::clock::{Clock, ManualClock};
use tollgate_telemetry::metrics::Metrics;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

const PARTITIONS: usize = 3;

/// Little, so that buckets are evicted.
const MEMORY_MAX: usize = 64 << 10;

/// Checks are decided of so many buckets.
const DECIDED_MAX: usize = 64;

/// What became of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It is refused.
    Refused,
    /// It has so many buckets.
    Loaded(u64),
}

/// All that a file says.
#[derive(Debug, PartialEq)]
struct Content {
    header: Header,
    buckets: Vec<(u32, SavedBucket)>,
}

fn read(file: &[u8]) -> Result<Content, ReadError> {
    let mut reader = Reader::new(file)?;
    let mut buckets = Vec::new();
    while let Some(block) = reader.next_block()? {
        block.for_each(|bucket| buckets.push((block.partition(), bucket)))?;
    }
    let header = reader.header().clone();
    Ok(Content { header, buckets })
}

fn write(content: &Content) -> std::io::Result<Vec<u8>> {
    let mut writer = Writer::new(Vec::new(), &content.header)?;
    let mut block = Block::default();
    for (partition, bucket) in &content.buckets {
        block.clear(*partition);
        block.push(bucket, &bucket.state.marks);
        block = writer.write(block)?;
    }
    Ok(writer.finish()?.0)
}

/// What the changed file had.
fn good() -> Content {
    let bucket = |number: u64| SavedBucket {
        key: Key(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)),
        state: State {
            updated_at: NOW.minus_us(number),
            registers: [number, REGISTER_MAX.saturating_sub(number)],
            marks: Marks::restore(
                (0..number % 4).map(|at| Mark {
                    at: NOW.minus_us(10_u64.saturating_sub(at)),
                    hits: 1,
                    holder: None,
                }),
                None,
            )
            .unwrap_or_default(),
        },
        exhausted: number.is_multiple_of(3),
        reset_us: 60_000_000,
        life_us: 120_000_000,
    };
    Content {
        header: Header {
            hash_secret: [7; 16],
            written_at: NOW,
            partitions: 2,
            overrides: Vec::new(),
        },
        buckets: (0..40).map(|number| (0, bucket(number))).collect(),
    }
}

/// A good file.
pub fn good_file() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| write(&good()).unwrap_or_default())
}

/// The good file after changes, each of four bytes: what, where (two bytes), and with what.
fn changed(changes: &[u8]) -> Vec<u8> {
    let mut file = good_file().to_vec();
    let (changes, _) = changes.as_chunks::<4>();
    for &[what, high, low, with] in changes {
        let at = usize::from(u16::from_be_bytes([high, low])) % file.len().max(1);
        let Some(byte) = file.get_mut(at) else {
            continue;
        };
        match what % 6 {
            0 => *byte ^= 1 << (with % 8),
            1 => *byte = with,
            2 => file.truncate(at),
            3 => file.insert(at, with),
            4 => drop(file.remove(at)),
            _ => file.push(with),
        }
    }
    file
}

/// Has a start read what these bytes say.
///
/// # Errors
///
/// What was wrong with the outcome.
pub fn withstand(bytes: &[u8]) -> Result<Outcome, String> {
    let Some((how, rest)) = bytes.split_first() else {
        return Ok(Outcome::Refused);
    };
    let file = match how % 3 {
        0 => rest.to_vec(),
        1 => file_of(rest).map_err(|error| error.to_string())?,
        _ => changed(rest),
    };
    let content = read(&file);
    let mut workers = workers()?;
    let loaded = load_into(&mut workers, &file);
    let Ok(content) = content else {
        let left: usize = workers
            .iter()
            .map(|worker| worker.decider().partition.len())
            .sum();
        if loaded.is_ok() || left > 0 {
            return Err(format!("{left} buckets of a refused file: {loaded:?}"));
        }
        return Ok(Outcome::Refused);
    };
    if how % 3 == 2 && content != good() {
        return Err("a changed file says something else, and is not refused".to_owned());
    }
    let count = content.buckets.len() as u64;
    if loaded.as_ref().ok() != Some(&count) {
        return Err(format!("{loaded:?} of {count} buckets"));
    }
    let again = write(&content).map_err(|error| error.to_string())?;
    if read(&again).ok().as_ref() != Some(&content) {
        return Err("what was read cannot be written and read again".to_owned());
    }
    decide(&workers, &content)?;
    Ok(Outcome::Loaded(count))
}

/// Partitions of the store. Their workers do not run.
fn workers() -> Result<Vec<PartitionWorker>, String> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(NOW));
    let metrics = Arc::new(Metrics::new().map_err(|error| error.to_string())?);
    let limits = MemoryLimits {
        partitions: PARTITIONS,
        queue_checks_max: 16,
        memory_max: MEMORY_MAX,
        when_full: WhenFull::Share,
    };
    Ok(MemoryStore::pair(&limits, &clock, &metrics).1)
}

/// How many buckets were loaded or dropped.
fn load_into(workers: &mut [PartitionWorker], file: &[u8]) -> Result<u64, String> {
    let mut reader = Reader::new(file).map_err(|error| error.to_string())?;
    let counts = load(workers, &mut reader, NOW).map_err(|error| error.to_string())?;
    let sum = counts.loaded.saturating_add(counts.expired);
    Ok(sum.saturating_add(counts.no_space))
}

/// Decides checks of the loaded buckets, in every algorithm, and after their reset.
fn decide(workers: &[PartitionWorker], content: &Content) -> Result<(), String> {
    for worker in workers {
        for (_, bucket) in content.buckets.iter().take(DECIDED_MAX) {
            for now in [NOW, NOW.minus_us(1_000_000), NOW.plus_us(400_000_000)] {
                for &algorithm in ALGORITHMS {
                    let mut check = Check {
                        key: bucket.key,
                        limit: Limit::per(10, Unit::Minute, NonZeroU32::MIN),
                        algorithm,
                        operation: Hits::Take(1).into(),
                        fingerprint: 7,
                        shared_bucket: false,
                        may_fall_back: false,
                        is_exact: false,
                        bucket_name: None,
                    };
                    // Without space it is an error.
                    drop(worker.decider().partition.apply(&mut check, now));
                }
            }
        }
        let (bytes, most) = (worker.decider().partition.bytes(), MEMORY_MAX / PARTITIONS);
        if bytes > most {
            return Err(format!("{bytes} bytes of {most}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tollgate_test_support::corpus;
    use tollgate_test_support::seeded_rng::SeededRng;

    use super::*;

    /// Number of mutations of the corpus. They take some seconds.
    const MUTATIONS: u64 = 2_000;

    /// What a start takes beside the file: partitions, metrics, and zstd's window.
    const FIXED_BYTES_MAX: u64 = 4 << 20;

    /// Bytes of memory for a byte of an item: its own, decoded, and in a bucket.
    const BYTES_FOR_ONE_MAX: u64 = 64;

    #[test]
    fn corpus_file_names_give_the_result() {
        for (name, input) in corpus::files("snapshot") {
            let outcome = withstand(&input).unwrap();
            let refused = name.starts_with("refused-");
            assert_eq!(outcome == Outcome::Refused, refused, "{name}: {outcome:?}");
        }
    }

    #[test]
    fn a_mutated_snapshot_is_refused_or_what_was_written_in_bounded_memory() {
        let files = corpus::files("snapshot");
        let mut random = SeededRng::of_seed(25);
        let mut loaded = 0;
        for number in 0..MUTATIONS {
            let mut input = files[random.position(files.len())].1.clone();
            for _ in 0..=random.below(4) {
                let at = random.position(input.len() + 1);
                match random.below(4) {
                    0 if at < input.len() => input[at] ^= 1 << random.below(8),
                    1 if at < input.len() => input[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
                    2 => drop(input.drain(at..(at + random.position(4)).min(input.len()))),
                    _ => input.insert(at, random.pick(&[0, 1, 8, 0xff])),
                }
            }
            let mut outcome = Ok(Outcome::Refused);
            let allocated = allocation_counter::measure(|| outcome = withstand(&input));
            let most = FIXED_BYTES_MAX + BYTES_FOR_ONE_MAX * input.len() as u64;
            assert!(allocated.bytes_max < most, "{number}: {allocated:?}");
            match outcome {
                Ok(Outcome::Loaded(_)) => loaded += 1,
                Ok(Outcome::Refused) => {}
                Err(broken) => panic!("{number}: {broken}: {input:?}"),
            }
        }
        assert!(loaded > MUTATIONS / 50, "{loaded} were loaded");
    }
}
