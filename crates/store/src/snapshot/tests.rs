//! The format: what is written is read, and nothing else is.

use std::io::Cursor;
use std::num::NonZeroU64;

use proptest::prelude::*;
use prost::Message as _;

use super::checksum::CHECKSUM_BYTES;
use super::{Block, Header, NAME, ReadError, Reader, SavedBucket, Writer};
use tollgate_limiter::{Holder, Key, Ledger, Mark, Marks, REGISTER_MAX, State, Timestamp};
use tollgate_wire::proto::tollgate::snapshot::v1 as proto;

const HEADER: Header = Header {
    hash_secret: *b"sixteen bytes ok",
    written_at: Timestamp::from_seconds(1_700_000_000),
    partitions: 3,
    overrides: Vec::new(),
};

fn bucket(number: u64, marks: Marks) -> SavedBucket {
    SavedBucket {
        key: Key(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)),
        state: State {
            updated_at: Timestamp::from_us(1_700_000_000_000_000 + number),
            registers: [number, REGISTER_MAX - number],
            marks,
        },
        exhausted: number.is_multiple_of(3),
        reset_us: 1_000_000 + number,
        life_us: 2_000_000 + number,
    }
}

fn marks(count: u64) -> Marks {
    let holder = |number| NonZeroU64::new(number % 3).map(Holder);
    let marks = (0..count).map(|number| Mark {
        at: Timestamp::from_us(number / 2),
        hits: number + 1,
        holder: holder(number),
    });
    let ledger = Ledger::restore([[9, 4, 0, 0, 5, 6, 7], [9, 5, 2, 3, 5, 6, 7]]);
    Marks::restore(marks, ledger.filter(|_| count.is_multiple_of(2))).unwrap()
}

fn buckets() -> Vec<SavedBucket> {
    let all = [(1, 0), (2, 2), (3, 1), (4, 0), (5, 8)];
    let all = all.into_iter();
    let none = [6, 7].map(|number| bucket(number, Marks::default()));
    all.map(|(number, count)| bucket(number, marks(count)))
        .chain(none)
        .collect()
}

fn written(blocks: &[&[SavedBucket]]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &HEADER).unwrap();
    let mut block = Block::default();
    for (number, buckets) in (0..).zip(blocks) {
        block.clear(number);
        for bucket in *buckets {
            block.push(bucket, &bucket.state.marks);
        }
        block = writer.write(block).unwrap();
    }
    let (file, written) = writer.finish().unwrap();
    let buckets: usize = blocks.iter().map(|block| block.len()).sum();
    assert_eq!(written.buckets, buckets as u64);
    assert_eq!(written.bytes, file.len() as u64);
    file
}

fn read(file: &[u8]) -> Result<(Header, Vec<(u32, SavedBucket)>), ReadError> {
    let mut reader = Reader::new(Cursor::new(file))?;
    let mut all = Vec::new();
    while let Some(block) = reader.next_block()? {
        block.for_each(|bucket| all.push((block.partition(), bucket)))?;
    }
    Ok((reader.header().clone(), all))
}

fn file_of(items: &[u8]) -> Vec<u8> {
    super::file_of(items).unwrap()
}

#[test]
fn what_is_written_is_read() {
    let all = buckets();
    let (first, second) = all.split_at(4);
    let (header, found) = read(&written(&[first, second, &[]])).unwrap();
    assert_eq!(header, HEADER);
    let expected: Vec<_> = first
        .iter()
        .map(|bucket| (0, bucket.clone()))
        .chain(second.iter().map(|bucket| (1, bucket.clone())))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(read(&written(&[])).unwrap().1, []);
}

/// The bytes of a file as it was written before headers had overrides.
#[test]
fn a_file_of_a_version_without_overrides_is_read() {
    let saved = bucket(1, Marks::default());
    let mut items = b"\x22\x0a\x20\x0a\x10sixteen bytes ok\x11".to_vec();
    items.extend(HEADER.written_at.as_us().to_le_bytes());
    items.extend(b"\x1d\x03\0\0\0\x4b\x12\x49");
    let columns = [
        u64::try_from(saved.key.0 >> 64).unwrap(),
        u64::try_from(saved.key.0 & u128::from(u64::MAX)).unwrap(),
        saved.state.updated_at.as_us(),
        saved.state.registers[0],
        saved.state.registers[1],
        saved.reset_us,
        saved.life_us,
    ];
    for (field, column) in (2_u8..).zip(columns) {
        items.extend([field << 3 | 2, 8]);
        items.extend(column.to_le_bytes());
    }
    items.extend(b"\x4a\x01\0\x0b\x1a\x09\x09\x01\0\0\0\0\0\0\0");
    let (header, found) = read(&file_of(&items)).unwrap();
    assert_eq!(header, HEADER);
    assert_eq!(found, [(0, saved)]);
}

#[test]
fn a_file_that_ends_early_is_refused_wherever_it_ends() {
    let file = written(&[&buckets()]);
    for length in 0..file.len() {
        let error = read(&file[..length]).unwrap_err();
        let expected = if length < NAME.len() + 4 {
            "foreign"
        } else {
            "damaged"
        };
        assert_eq!(error.cause(), expected, "{length}: {error}");
    }
    let longer = [file.as_slice(), b"x"].concat();
    assert_eq!(read(&longer).unwrap_err().cause(), "damaged");
}

#[test]
fn a_flipped_bit_is_refused_wherever_it_is() {
    let file = written(&[&buckets()]);
    for bit in 0..file.len() * 8 {
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&flipped).is_err(), "bit {bit} of {}", file.len() * 8);
    }
}

#[test]
fn versions_and_foreign_files_are_told_apart() {
    let mut file = written(&[&buckets()]);
    file[NAME.len()] = 2;
    assert!(matches!(read(&file), Err(ReadError::Version(2))));
    file[0] = b'T';
    assert!(matches!(read(&file), Err(ReadError::Foreign)));
    assert!(matches!(read(b""), Err(ReadError::Foreign)));
    assert!(matches!(read(&[0; 4_096]), Err(ReadError::Foreign)));
}

#[test]
fn items_that_contradict_each_other_are_refused() {
    let encoded = |items: &[proto::item::Item]| {
        let items = items
            .iter()
            .cloned()
            .map(|item| proto::Item { item: Some(item) });
        items
            .flat_map(|item| item.encode_length_delimited_to_vec())
            .collect::<Vec<_>>()
    };
    let header = proto::item::Item::Header(proto::Header {
        hash_secret: vec![1; 16],
        written_at_us: 1,
        partitions: 1,
        overrides: Vec::new(),
    });
    let end = |buckets| proto::item::Item::End(proto::End { buckets });
    let block = |change: fn(&mut proto::Block)| {
        let mut block = Block::default();
        block.push(&bucket(1, marks(2)), &marks(2));
        change(&mut block.columns);
        proto::item::Item::Block(block.columns)
    };
    let good = [header.clone(), block(|_| {}), end(1)];
    assert!(read(&file_of(&encoded(&good))).is_ok());
    let changes: [fn(&mut proto::Block); 9] = [
        |block| block.key_lower.clear(),
        |block| block.exhausted.push(true),
        |block| block.register_0[0] = u64::MAX,
        |block| block.marked[0] = 7,
        |block| block.marks_count[0] = u32::MAX,
        |block| block.marks_count[0] = 1,
        |block| block.records_count[0] = u32::MAX,
        |block| block.marks[1] = 0,
        |block| block.records[2] = 99,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let bad = [header.clone(), block(change), end(1)];
        assert_eq!(
            read(&file_of(&encoded(&bad))).unwrap_err().cause(),
            "damaged",
            "{number}"
        );
    }
    for bad in [
        vec![],
        vec![end(0)],
        vec![header.clone()],
        vec![header.clone(), end(1)],
        vec![header.clone(), header.clone(), end(0)],
        vec![header.clone(), block(|_| {}), end(2)],
        vec![header.clone(), end(0), end(0)],
    ] {
        assert_eq!(
            read(&file_of(&encoded(&bad))).unwrap_err().cause(),
            "damaged",
            "{bad:?}"
        );
    }
}

#[test]
fn a_promise_of_much_allocates_what_is_there() {
    // A length of 64 MiB, and nothing behind it; and one above the bound.
    for length in [[0x80, 0x80, 0x80, 0x20], [0xff, 0xff, 0xff, 0x7f]] {
        let file = file_of(&length);
        let mut result = None;
        let allocated = allocation_counter::measure(|| result = Some(read(&file)));
        assert_eq!(result.unwrap().unwrap_err().cause(), "damaged");
        assert!(allocated.bytes_max < 2 << 20, "{allocated:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), named in any::<bool>()) {
        let name = if named { written(&[])[..20].to_vec() } else { Vec::new() };
        prop_assert!(read(&[name, bytes].concat()).is_err());
    }

    #[test]
    fn arbitrary_items_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(read(&file_of(&bytes)).is_err());
    }

    /// Below the checksum: real items with some bytes changed.
    #[test]
    fn changed_items_do_not_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let file = written(&[&buckets()]);
        let mut items = zstd::decode_all(&file[20..file.len() - CHECKSUM_BYTES]).unwrap();
        for (at, byte) in changes {
            let at = at.index(items.len());
            items[at] = byte;
        }
        drop(read(&file_of(&items)));
    }
}
