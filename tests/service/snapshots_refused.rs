//! Snapshots that cannot be read: a message, empty buckets, and the file set aside.

use std::fs;
use std::path::Path;

use tollgate_limiter::ALGORITHMS;
use tollgate_test_support::in_process::START;

use super::snapshots::{Folder, admitted, ten_of_each};

/// What the next start makes of a good snapshot after this change: its cause, as metrics name it.
async fn refused(cause: &str, change: impl FnOnce(&Path)) -> Folder {
    let (folder, rules) = (Folder::new(), ten_of_each());
    let mut service = folder.start(&rules, &[], START).await;
    assert_eq!(admitted(&mut service, 6).await, [6; ALGORITHMS.len()]);
    service.stop().await.unwrap();
    change(&folder.snapshot());

    let mut service = folder.start(&rules, &[], START).await;
    let failures = format!("tollgate_snapshot_load_failures_total{{cause=\"{cause}\"}}");
    assert_eq!(service.metric(&failures), 1, "{cause}");
    assert_eq!(admitted(&mut service, 11).await, [10; ALGORITHMS.len()]);
    service.stop().await.unwrap();
    folder
}

fn change_bytes(change: impl FnOnce(&mut Vec<u8>)) -> impl FnOnce(&Path) {
    |path| {
        let mut bytes = fs::read(path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }
}

#[tokio::test]
async fn damaged_and_foreign_files_are_set_aside_and_replaced_by_the_next_snapshot() {
    let both = ["buckets.snapshot", "buckets.snapshot.refused"];
    let folders = [
        refused("damaged", change_bytes(|bytes| bytes.truncate(60))).await,
        // In the header of zstd's frame, in its body, in its checksum.
        refused("damaged", change_bytes(|bytes| bytes[21] ^= 1)).await,
        refused("damaged", change_bytes(|bytes| bytes[70] ^= 0x10)).await,
        refused(
            "damaged",
            change_bytes(|bytes| *bytes.last_mut().unwrap() ^= 0x80),
        )
        .await,
        refused("version", change_bytes(|bytes| bytes[16] = 9)).await,
        refused("foreign", change_bytes(Vec::clear)).await,
        refused("foreign", change_bytes(|bytes| bytes[0] = b'x')).await,
    ];
    for folder in folders {
        assert_eq!(folder.files(), both);
    }
}

#[tokio::test]
async fn what_a_killed_process_left_is_removed_at_start() {
    let (folder, rules) = (Folder::new(), ten_of_each());
    let mut service = folder.start(&rules, &[], START).await;
    assert_eq!(admitted(&mut service, 6).await, [6; ALGORITHMS.len()]);
    service.stop().await.unwrap();
    let mut incomplete = folder.snapshot().into_os_string();
    incomplete.push(".tmp");
    fs::write(&incomplete, b"tollgate-buckets").unwrap();
    let mut service = folder.start(&rules, &[], START).await;
    assert_eq!(folder.files(), ["buckets.snapshot"]);
    assert_eq!(admitted(&mut service, 10).await, [4; ALGORITHMS.len()]);
}
