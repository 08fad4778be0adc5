//! A unix socket in place of the gRPC port.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::child_process::{KillOnDrop, run_to_end};
use tollgate_test_support::grpc_client::{Code, RateLimitServiceClient, descriptor, request};
use tollgate_test_support::polling::{until, until_async};
use tollgate_test_support::tollgate_process::tollgate_binary;
use tonic::transport::Endpoint;

use crate::gateway::RULES;

fn serve(directory: &Path) -> Command {
    let rules = directory.join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let mut command = Command::new(tollgate_binary());
    command
        .arg("serve")
        .arg(rules)
        .args(["--host", "127.0.0.1", "--port", "0", "--debug-port", "0"])
        .args(["--drain-delay", "0"])
        .env_clear()
        .env("GRPC_UDS", directory.join("grpc.sock"))
        .stderr(Stdio::piped());
    command
}

async fn ask(socket: &Path) -> Option<Code> {
    let mut stream = Some(TokioIo::new(UnixStream::connect(socket).await.ok()?));
    let connector = tower::service_fn(move |_| {
        let stream = stream.take();
        async move { stream.ok_or_else(|| std::io::Error::other("one connection only")) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await.ok()?;
    let mut client = RateLimitServiceClient::new(channel);
    let asked = request("d", vec![descriptor(&[("k", "a")])]);
    let answer = client.should_rate_limit(asked).await.ok()?.into_inner();
    Some(answer.overall_code())
}

fn mode(socket: &Path) -> u32 {
    std::fs::metadata(socket).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_replaces_a_stale_one_and_is_removed_at_exit() {
    for (modes, is) in [(&[][..], 0o660), (&["--grpc-uds-mode", "0600"], 0o600)] {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("grpc.sock");
        // A stale socket: a dropped listener leaves its file.
        drop(UnixListener::bind(&socket).unwrap());
        assert!(socket.exists());
        let mut serving = KillOnDrop(serve(directory.path()).args(modes).spawn_tied().unwrap());
        let answered = until_async("the socket answers", async || ask(&socket).await).await;
        assert_eq!(answered, Code::Ok);
        assert_eq!(mode(&socket), is);
        // `tollgate hit` names it as gRPC does.
        let address = format!("unix:{}", socket.display());
        let (code, said) = run_to_end(
            Command::new(tollgate_binary())
                .args(["hit", &address, "d", "k=a", "--any-decision"])
                .stderr(Stdio::piped()),
        );
        assert_eq!(code, Some(0), "{said}");
        // A second process finds the socket in use, reports that, and leaves it.
        let (code, said) = run_to_end(&mut serve(directory.path()));
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("grpc.sock: another process listens there"),
            "{said}"
        );
        assert_eq!(ask(&socket).await, Some(Code::Ok));
        let id = serving.0.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", "TERM", &id])
                .status()
                .unwrap()
                .success()
        );
        let ended = until("it ends", || serving.0.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0));
        assert!(!socket.exists());
    }
}

#[test]
fn a_file_that_is_not_a_socket_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("grpc.sock");
    std::fs::write(&file, "precious").unwrap();
    let (code, said) = run_to_end(&mut serve(directory.path()));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is not a socket"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}
