//! Tests of recording files.

use proptest::prelude::*;

use super::{Event, Events as _, ReadError, Reader, Writer};
use tollgate_wire::proto::tollgate::recording::v1::item::Item as Kind;
use tollgate_wire::proto::tollgate::recording::v1::{End, Header, Item, Request, Watermark};

fn item(kind: Kind) -> Item {
    Item { item: Some(kind) }
}

fn header() -> Item {
    item(Kind::Header(Header {
        version: 1,
        ..Header::default()
    }))
}

fn request(order: u64) -> Item {
    item(Kind::Request(Request {
        order,
        ..Request::default()
    }))
}

fn watermark(order: u64) -> Item {
    item(Kind::Watermark(Watermark { order }))
}

fn end() -> Item {
    item(Kind::End(End {
        reason: "time".to_owned(),
        requests: 0,
    }))
}

/// A file whose items are written in blocks of one.
fn file(items: &[Item]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for item in items {
        writer.write(item).expect("write");
        writer.end_block().expect("block");
    }
    writer.finish().expect("finish")
}

/// The orders of the events, and whether the recording is complete.
fn orders(file: &[u8]) -> Result<(Vec<u64>, bool), ReadError> {
    let mut reader = Reader::new(file)?;
    let mut orders = Vec::new();
    while let Some(event) = reader.next_event()? {
        orders.push(match event {
            Event::Request(request) => request.order,
            Event::Refund(refund) => refund.order,
            Event::Reset(reset) => reset.order,
        });
    }
    Ok((orders, reader.summary().ended.is_some()))
}

#[test]
fn events_come_in_their_order() {
    let items = [
        header(),
        request(3),
        request(1),
        request(5),
        request(2),
        watermark(4),
        request(4),
        watermark(5),
        request(6),
        end(),
    ];
    let read = orders(&file(&items)).expect("read");
    assert_eq!(read, (vec![1, 2, 3, 4], true), "5 and 6 may not be all");
}

#[test]
fn a_file_that_was_cut_off_is_read_up_to_there() {
    let whole = [
        header(),
        request(1),
        watermark(2),
        request(2),
        watermark(3),
        end(),
    ];
    let whole = file(&whole);
    for length in file(&[header()]).len()..whole.len() {
        let (orders, complete) = orders(&whole[..length]).expect("read");
        assert!(!complete, "{length} bytes");
        assert!([1, 2].starts_with(&orders), "{orders:?}");
    }
    assert_eq!(orders(&whole).expect("read"), (vec![1, 2], true));
}

#[test]
fn other_files_are_named() {
    for bytes in [&b""[..], b"domain: edge", b"\x28\xb5\x2f\xfd"] {
        assert!(matches!(orders(bytes), Err(ReadError::NoRecording)));
    }
    let later = item(Kind::Header(Header {
        version: 7,
        ..Header::default()
    }));
    assert!(matches!(
        orders(&file(&[later])),
        Err(ReadError::Version(7))
    ));
}

proptest! {
    #[test]
    fn odd_bytes_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = file(&[header(), request(1), request(2), end()]);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        // Any result will do.
        let _ = orders(&bytes);
    }

    #[test]
    fn odd_items_never_panic(items in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut writer = Writer::new(Vec::new());
        writer.write(&header()).expect("write");
        writer.write_encoded(&items).expect("write");
        let _ = orders(&writer.finish().expect("finish"));
    }
}
