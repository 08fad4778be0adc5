//! Runs the podman commands of `docs/image.md` that need no daemon and no other machine.
//!
//! What it deliberately does not do: Docker commands, which have the same arguments, or builds for
//! two platforms.

use std::process::Command;

use crate::image::isolation::{Machine, alone, run};

#[test]
fn every_podman_command_of_the_page_runs() {
    alone(|machine: &Machine| {
        let page = std::fs::read_to_string("docs/image.md").unwrap();
        let context = machine.files.parent().unwrap().to_str().unwrap();
        let blocks = page.split("```sh\n").skip(1);
        let blocks = blocks.map(|block| block.split("```").next().unwrap());
        let commands = blocks.flat_map(str::lines);
        let commands = commands.filter(|line| line.starts_with("podman "));
        let mut last = String::new();
        let mut count = 0;
        for command in commands {
            let command = command.replace("target/image", context);
            // Runs them in a shell with a network namespace without external access.
            last = run(Command::new("sh").args(["-ec", &command]));
            count += 1;
        }
        assert!(count >= 2, "the page has {count}");
        assert!(last.contains("good, "), "{last}");
    });
}
