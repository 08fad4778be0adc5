//! A folder with the layout of a ConfigMap volume.
//!
//! How: like kubelet, each file is a link through `..data`, itself a link to a folder. A change
//! writes a new folder and replaces `..data` by one rename.
//!
//! What it deliberately does not do: remove files that are no longer in the ConfigMap.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A volume in memory.
pub(crate) struct Volume {
    pub(crate) folder: PathBuf,
    written: usize,
}

impl Volume {
    pub(crate) fn new(name: &str) -> Self {
        let folder = Path::new("/run").join(name);
        fs::create_dir(&folder).expect("a folder");
        Self { folder, written: 0 }
    }

    /// Replaces the files.
    pub(crate) fn write(&mut self, files: &Value) {
        self.written += 1;
        let folder = format!("..2026_01_02_03_04_{:02}.678901234", self.written);
        fs::create_dir(self.folder.join(&folder)).expect("a folder");
        for (name, text) in files.as_object().expect("files") {
            let text = text.as_str().expect("a text");
            fs::write(self.folder.join(&folder).join(name), text).expect("a file");
            let link = self.folder.join(name);
            if !link.is_symlink() {
                symlink(Path::new("..data").join(name), link).expect("a link");
            }
        }
        symlink(&folder, self.folder.join("..data_tmp")).expect("a link");
        fs::rename(self.folder.join("..data_tmp"), self.folder.join("..data")).expect("a rename");
    }
}
