//! The Redis protocol: `CL.THROTTLE` by redis-cell's documented numbers, `TG.CHECK`, and what
//! clients send around them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use tollgate_test_support::grpc_client::hits;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::PATIENCE;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 3 }
";

async fn start(arguments: &[&str]) -> (Service, Client) {
    let flags = ["--resp-port", "0", "--ingress-host", "127.0.0.1"];
    let service = Service::start(RULES, &[&flags, arguments].concat()).await;
    let client = Client::open(service.ingresses[0]);
    (service, client)
}

/// A connection that sends lines and compares what comes back.
struct Client(TcpStream);

impl Client {
    fn open(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Sends these bytes, and reads as many as are expected.
    fn expect(&mut self, sent: &[u8], expected: &str) {
        self.0.write_all(sent).unwrap();
        let mut received = vec![0; expected.len()];
        self.0.read_exact(&mut received).unwrap();
        assert_eq!(String::from_utf8_lossy(&received), expected);
    }

    /// Sends a command as an array of strings, and compares its answer.
    fn command(&mut self, command: &str, expected: &str) {
        self.expect(&array(command), expected);
    }

    /// The five integers of a command.
    fn integers(&mut self, command: &str, expected: [i64; 5]) {
        let expected = expected.map(|number| format!(":{number}\r\n"));
        self.command(command, &format!("*5\r\n{}", expected.concat()));
    }

    /// Everything until the end of the connection.
    fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).unwrap();
        rest
    }
}

/// A command as an array of strings.
pub(super) fn array(command: &str) -> Vec<u8> {
    let words: Vec<_> = command.split(' ').collect();
    let each = words.iter();
    let each = each.map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let each: String = each.collect();
    format!("*{}\r\n{each}", words.len()).into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn cl_throttle_answers_as_redis_cell_documents() {
    let (service, mut client) = start(&[]).await;
    // The example of redis-cell's README: one of 16, and 2 s until the bucket is full again.
    client.integers("CL.THROTTLE user123 15 30 60", [0, 16, 15, -1, 2]);
    client.integers("cl.throttle user123 15 30 60 1", [0, 16, 14, -1, 4]);
    client.integers("CL.THROTTLE user123 15 30 60 14", [0, 16, 0, -1, 32]);
    client.integers("CL.THROTTLE user123 15 30 60", [1, 16, 0, 2, 32]);
    client.integers("CL.THROTTLE user123 15 30 60 3", [1, 16, 0, 6, 32]);
    // More than the bucket holds never passes.
    client.integers("CL.THROTTLE user123 15 30 60 17", [1, 16, 0, -1, 32]);
    client.integers("CL.THROTTLE other 15 30 60", [0, 16, 15, -1, 2]);
    service.clock.advance_us(2_000_000);
    client.integers("CL.THROTTLE user123 15 30 60 0", [0, 16, 1, -1, 30]);
    client.integers("CL.THROTTLE user123 15 30 60", [0, 16, 0, -1, 32]);
    // Dragonfly's example: a bucket of one, which fills in ten seconds.
    client.integers("CL.THROTTLE USER1 0 1 10 1", [0, 1, 0, -1, 10]);
    client.integers("CL.THROTTLE USER1 0 1 10 1", [1, 1, 0, 10, 10]);
    let usage = "use CL.THROTTLE key max_burst count_per_period period [quantity]";
    for (command, why) in [
        (
            "CL.THROTTLE a 1 1",
            format!("wrong number of arguments; {usage}"),
        ),
        (
            "CL.THROTTLE a -1 1 1",
            "max_burst is not a whole number from 0 to 4294967294".to_owned(),
        ),
        (
            "CL.THROTTLE a 1 0 1",
            "count_per_period is not a whole number from 1 to 4294967294".to_owned(),
        ),
        (
            "CL.THROTTLE a 1 1 0",
            "period is not a whole number from 1 to 4294967294".to_owned(),
        ),
        (
            "CL.THROTTLE a 1 1 1 x",
            "quantity is not a whole number from 0 to 4294967294".to_owned(),
        ),
    ] {
        client.command(command, &format!("-ERR {why}\r\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tg_check_takes_hits_of_the_rules() {
    let (mut service, mut client) = start(&[]).await;
    client.integers("TG.CHECK d 2 user ann", [0, 3, 1, -1, 50]);
    // Envoy's requests count in the same bucket.
    let status = service.status("d", hits("user", "ann", 1)).await;
    assert_eq!(status.limit_remaining, 0);
    client.integers("TG.CHECK d 1 user ann", [1, 3, 0, 50, 50]);
    client.integers("TG.CHECK d 1 other x", [0, -1, -1, -1, -1]);
    client.integers("TG.CHECK unknown 1 user ann", [0, -1, -1, -1, -1]);
    let usage = "wrong arguments; use TG.CHECK DOMAIN HITS key value [key value ...]";
    client.command("TG.CHECK d 1 user", &format!("-ERR {usage}\r\n"));
    let hits = "HITS is not a whole number of at least 0";
    client.command("TG.CHECK d -1 user a", &format!("-ERR {hits}\r\n"));
    let refused = "tollgate_ingress_checks_total{ingress=\"resp\",result=\"refused\"}";
    assert_eq!(service.metric(refused), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_come_together_are_answered_in_their_order() {
    let (_service, mut client) = start(&[]).await;
    let sent = [
        array("PING"),
        array("TG.CHECK d 3 user bob"),
        array("TG.CHECK d 1 user bob"),
        b"PING hello\r\n".to_vec(),
    ];
    let expected = "+PONG\r\n*5\r\n:0\r\n:3\r\n:0\r\n:-1\r\n:50\r\n*5\r\n:1\r\n:3\r\n:0\r\n:50\r\n:50\r\n$5\r\nhello\r\n";
    client.expect(&sent.concat(), expected);
    let many = array("CL.THROTTLE k 999 1 1").repeat(1_000);
    client.0.write_all(&many).unwrap();
    for left in (0..1_000).rev() {
        let whole = 1_000 - left;
        client.expect(
            b"",
            &format!("*5\r\n:0\r\n:1000\r\n:{left}\r\n:-1\r\n:{whole}\r\n"),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_send_around_commands_is_answered() {
    let (_service, mut client) = start(&[]).await;
    client.command("SELECT 0", "+OK\r\n");
    client.command(
        "SELECT 1",
        "-ERR DB index is out of range; there is only 0\r\n",
    );
    client.command("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n");
    client.command("CLIENT GETNAME", "$-1\r\n");
    client.command("COMMAND DOCS", "*0\r\n");
    client.command("GET k", "-ERR unknown command 'GET'\r\n");
    client.command("HELLO 4", "-NOPROTO unsupported protocol version\r\n");
    let version = env!("CARGO_PKG_VERSION");
    let length = version.len();
    let fields = |proto: u8| {
        format!(
            "$6\r\nserver\r\n$8\r\ntollgate\r\n$7\r\nversion\r\n${length}\r\n{version}\r\n$5\r\nproto\r\n:{proto}\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
        )
    };
    client.command("HELLO", &format!("*14\r\n{}", fields(2)));
    client.command("HELLO 3 SETNAME x", &format!("%7\r\n{}", fields(3)));
    client.command("CLIENT GETNAME", "_\r\n");
    client.command(
        "AUTH x",
        "-ERR AUTH called without any password configured; set --resp-password-file\r\n",
    );
    client.command("QUIT", "+OK\r\n");
    assert_eq!(client.rest(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_required_where_one_is_set() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "correct horse battery\n").unwrap();
    let path = file.path().to_str().unwrap();
    let (service, mut client) = start(&["--resp-password-file", path]).await;
    let needed = "-NOAUTH Authentication required.\r\n";
    client.command("PING", needed);
    client.command("CL.THROTTLE a 1 1 1", needed);
    let wrong = "-WRONGPASS invalid username-password pair.\r\n";
    client.command("AUTH wrong", wrong);
    client.command("HELLO 3 AUTH default wrong", wrong);
    let password = b"*2\r\n$4\r\nAUTH\r\n$21\r\ncorrect horse battery\r\n";
    client.expect(password, "+OK\r\n");
    client.command("PING", "+PONG\r\n");
    let invalid = "tollgate_ingress_checks_total{ingress=\"resp\",result=\"invalid\"}";
    assert_eq!(service.metric(invalid), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn bombs_and_http_end_their_own_connection() {
    let (service, mut client) = start(&[]).await;
    for (sent, why) in [
        (&b"*1000000000\r\n"[..], "invalid multibulk length"),
        (b"*1\r\n*1\r\n", "expected '$'"),
        (
            b"POST / HTTP/1.1\r\nhost: x\r\n",
            "this is no HTTP listener",
        ),
    ] {
        let mut hostile = Client::open(service.ingresses[0]);
        hostile.expect(sent, &format!("-ERR Protocol error: {why}\r\n"));
    }
    client.command("PING", "+PONG\r\n");
}
