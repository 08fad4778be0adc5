//! Tests that a check allocates nothing, from the bytes of the request to those of the response.
//!
//! An allocator counts allocations by thread, and one thread runs everything: the batcher and the
//! workers of the partitions. Then the same with a real connection.
//!
//! What it deliberately does not do: measure time (`make bench`).

mod single_thread;

// The whole file is a test; the attribute is for `tests/tidy.rs`.
#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;

    use allocation_counter::measure;
    use bytes::Bytes;
    use prost::Message as _;
    use tokio::sync::{mpsc, oneshot, watch};
    use tokio::task::LocalSet;

    use super::single_thread::{Bench, RULES, descriptor, framed, kinds};
    use crate::admin_api::{RankBy, Window};
    use crate::capture::RecordingOptions;
    use crate::grpc::connection::{self, ThreadContext};
    use crate::net::{PortConfig, ShutdownSignal, accept_with};
    use crate::pipeline::Batcher;
    use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
    use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
    use crate::top_keys::TopQuery;
    use crate::tracing::TraceParent;

    /// Number of checks before counting begins, and of checks that are counted.
    const WARM_UP: usize = 2_000;
    const CHECKS: usize = 10_000;

    /// Minimum number of turns before counting begins: a channel has all its memory after a few
    /// blocks of 32 messages.
    const WARM_UP_TURNS_MIN: usize = 200;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn a_check_allocates_nothing() {
        let runtime = runtime();
        let _entered = runtime.enter();
        for (kind, code, bodies) in kinds() {
            for at_once in [1, 64] {
                let mut bench = Bench::new(&[]);
                let mut turns = bodies.chunks(at_once).cycle();
                for _ in 0..(WARM_UP / at_once).max(WARM_UP_TURNS_MIN) {
                    bench.turn(turns.next().unwrap(), false);
                }
                let seen = RateLimitResponse::decode(&bench.answered.borrow()[0][5..]).unwrap();
                assert_eq!(seen.overall_code(), code, "{kind}");
                bench.in_place = 0;
                let mut answered = 0;
                let allocated = measure(|| {
                    for _ in 0..CHECKS / at_once {
                        bench.turn(turns.next().unwrap(), false);
                        answered += bench.answered.borrow().len();
                    }
                });
                assert_eq!(answered, CHECKS / at_once * at_once);
                // A check alone is decided without a worker. Of 64, at least half are not.
                let is_alone = at_once == 1 || kind == "no rule matches";
                assert_eq!(bench.in_place == answered, is_alone, "{kind}");
                assert_eq!(
                    allocated.count_total, 0,
                    "{kind}, {at_once} at once: {allocated:?}"
                );
            }
        }
    }

    #[test]
    fn a_check_beside_a_candidate_allocates_nothing() {
        let runtime = runtime();
        let _entered = runtime.enter();
        let candidate = RULES.replace("requests_per_unit: 1 ", "requests_per_unit: 2 ");
        for (kind, _, bodies) in kinds() {
            for at_once in [1, 64] {
                let mut bench = Bench::with_candidate(&[], Some(&candidate));
                let mut turns = bodies.chunks(at_once).cycle();
                let warm_up = (WARM_UP / at_once).max(WARM_UP_TURNS_MIN);
                for _ in 0..warm_up {
                    bench.turn(turns.next().unwrap(), false);
                }
                let allocated = measure(|| {
                    for _ in 0..CHECKS / at_once {
                        bench.turn(turns.next().unwrap(), false);
                    }
                });
                let decided = bench.server.metrics.render().unwrap();
                let decided = decided
                    .lines()
                    .filter(|line| line.starts_with("tollgate_candidate_requests_total{"))
                    .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
                let turns = warm_up + CHECKS / at_once;
                assert_eq!(decided.sum::<usize>(), turns * at_once, "{kind}");
                assert_eq!(
                    allocated.count_total, 0,
                    "{kind}, {at_once} at once: {allocated:?}"
                );
            }
        }
    }

    #[test]
    fn a_check_that_is_recorded_allocates_nothing() {
        let runtime = runtime();
        let _entered = runtime.enter();
        for (kind, _, bodies) in kinds() {
            let mut bench = Bench::new(&[]);
            let capture = Arc::clone(&bench.capture);
            let mut recording = capture.record(RecordingOptions::default()).unwrap();
            let mut turns = bodies.chunks(16).cycle();
            for _ in 0..WARM_UP_TURNS_MIN {
                bench.turn(turns.next().unwrap(), false);
                drop(recording.window());
            }
            let (mut allocated, mut requests) = (0, 0);
            for _ in 0..CHECKS / 16 {
                let turn = measure(|| bench.turn(turns.next().unwrap(), false));
                allocated += turn.count_total;
                // The task that streams the recording may allocate.
                let window = recording.window();
                requests += window.buffers.iter().map(|one| one.requests).sum::<u64>();
            }
            assert_eq!(requests, (CHECKS / 16 * 16) as u64, "{kind}");
            assert_eq!(allocated, 0, "{kind}");
        }
    }

    #[test]
    fn counting_keys_allocates_nothing_across_intervals() {
        let runtime = runtime();
        let _entered = runtime.enter();
        for (kind, _, bodies) in kinds() {
            let mut bench = Bench::new(&[]);
            let mut turns = bodies.chunks(16).cycle();
            // A turn each fifth second, over an hour and more.
            let mut hour = |bench: &mut Bench| {
                for _ in 0..740 {
                    bench.clock.advance_us(5_000_000);
                    bench.turn(turns.next().unwrap(), false);
                }
            };
            hour(&mut bench);
            hour(&mut bench);
            let allocated = measure(|| hour(&mut bench));
            assert_eq!(allocated.count_total, 0, "{kind}: {allocated:?}");
            // Keys were counted, with their texts, where there are any.
            let query = TopQuery {
                by: RankBy::Asked,
                window: Window::Hour,
                n: 1_000,
                ..TopQuery::default()
            };
            let rules = bench.server.pipeline.current_rules().unwrap();
            let batcher = Rc::new(bench.batcher);
            let local = LocalSet::new();
            local.spawn_local(Rc::clone(&batcher).answer_questions());
            let top_keys = bench.server.pipeline.top_keys();
            let query = top_keys.query(&query, Some(&rules.rules));
            let top = local.block_on(&runtime, query);
            let keys = if kind == "no rule matches" { 0 } else { 64 };
            assert!(top.keys.len() >= keys, "{kind}: {}", top.keys.len());
            assert!(
                top.keys.iter().all(|key| !key.descriptor.is_empty()),
                "{kind}"
            );
        }
    }

    #[test]
    fn an_unsampled_check_allocates_nothing_with_tracing_on() {
        let runtime = runtime();
        let _entered = runtime.enter();
        let not_sampled = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let sampled = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (_, _, bodies) = kinds().remove(0);
        let allocations = |share, header: Option<&[u8]>| {
            let mut bench = Bench::new(&[
                "--tracing-enabled",
                "true",
                "--tracing-sampling-rate",
                share,
            ]);
            bench.parent = header.and_then(TraceParent::read);
            assert_eq!(bench.parent.is_some(), header.is_some());
            let mut turns = bodies.chunks(8).cycle();
            for _ in 0..WARM_UP_TURNS_MIN {
                bench.turn(turns.next().unwrap(), false);
            }
            // Only this thread is counted, not the exporter's.
            let allocated = measure(|| {
                for _ in 0..1_000 {
                    bench.turn(turns.next().unwrap(), false);
                }
            });
            allocated.count_total
        };
        // The caller does not sample. Without a header the rate is 0, or so low that no check is
        // sampled.
        assert_eq!(allocations("1", Some(not_sampled)), 0);
        assert_eq!(allocations("0", None), 0);
        assert_eq!(allocations("0.000000001", None), 0);
        // A sampled check allocates, or this test would show nothing.
        assert!(allocations("0", Some(sampled)) > 0);
    }

    #[test]
    fn hits_taken_for_a_cancelled_call_are_refunded() {
        let runtime = runtime();
        let _entered = runtime.enter();
        let mut bench = Bench::new(&["--all-or-nothing", "true"]);
        let asked = [framed(vec![
            descriptor(&[("window", "x".to_owned())]),
            descriptor(&[("tight", "x".to_owned())]),
        ])];
        let given_back = |bench: &Bench| bench.server.metrics.buckets.given_back.get();
        bench.turn(&asked, true);
        assert_eq!(bench.answered.borrow().len(), 0);
        bench.turn(&[], false);
        assert_eq!(given_back(&bench), 2);
        // So the next request finds all hits, and the one after it none.
        for code in [Code::Ok, Code::OverLimit] {
            bench.turn(&asked, false);
            let answer = RateLimitResponse::decode(&bench.answered.borrow()[0][5..]).unwrap();
            assert_eq!(answer.overall_code(), code);
        }
        bench.turn(&[], false);
        // Only the first of the two limits took hits; the second refused.
        assert_eq!(given_back(&bench), 3);
    }

    #[test]
    fn a_connection_adds_no_allocation() {
        let runtime = runtime();
        let mut bench = Bench::new(&[]);
        let local = LocalSet::new();
        for at_once in [1, 100] {
            let workers: Vec<_> = bench.workers.drain(..).collect();
            for worker in workers {
                local.spawn_local(worker);
            }
            let batcher = Rc::new(Batcher::new(&bench.server.pipeline));
            local.spawn_local(Rc::clone(&batcher).run());
            let (address, served) = local.block_on(&runtime, async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                let config = PortConfig {
                    connections_max: 4,
                    preface_bytes: 0,
                    tls: None,
                    counters: bench.server.metrics.connections.port("grpc"),
                };
                let (mut connections, run) = accept_with(listener.into(), config);
                tokio::task::spawn_local(run);
                let (stop, stopping) = watch::channel(false);
                let server = bench.server.clone();
                tokio::task::spawn_local(async move {
                    let connection = connections.recv().await.unwrap();
                    let stopping = ShutdownSignal::new(stopping);
                    let thread = ThreadContext::new(batcher, &server);
                    connection::serve(connection, stopping, thread, server).await;
                });
                (address, stop)
            });
            let (go, mut rounds) = mpsc::unbounded_channel::<(usize, oneshot::Sender<()>)>();
            let body = kinds().remove(0).2.remove(0);
            // The client's thread is not counted.
            let client = std::thread::spawn(move || {
                self::runtime().block_on(async move {
                    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
                    stream.set_nodelay(true).unwrap();
                    let (send, connection) = h2::client::handshake(stream).await.unwrap();
                    tokio::spawn(connection);
                    while let Some((checks, done)) = rounds.recv().await {
                        for _ in 0..checks / at_once {
                            ask(&send, &body, at_once).await;
                        }
                        done.send(()).unwrap();
                    }
                });
            });
            let run = |checks| {
                let (done, finished) = oneshot::channel();
                go.send((checks, done)).unwrap();
                local.block_on(&runtime, finished).unwrap();
            };
            run(WARM_UP);
            let allocated = measure(|| run(CHECKS));
            #[allow(clippy::cast_precision_loss)] // ten thousand checks
            let a_check = |count: u64| count as f64 / CHECKS as f64;
            println!(
                "{at_once} checks at once on a connection: {:.4} allocations and {:.2} bytes a check",
                a_check(allocated.count_total),
                a_check(allocated.bytes_total),
            );
            // The counting itself allocates, and now and then the runtime grows a table.
            assert!(allocated.count_total < 50, "{allocated:?}");
            drop(go);
            client.join().unwrap();
            drop(served);
        }
    }

    async fn ask(send: &h2::client::SendRequest<Bytes>, body: &Bytes, at_once: usize) {
        let mut answers = Vec::new();
        for _ in 0..at_once {
            let mut send = send.clone().ready().await.unwrap();
            let request = http::Request::post(
                "http://test/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            )
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", "20m")
            .body(())
            .unwrap();
            let (answer, mut stream) = send.send_request(request, false).unwrap();
            stream.send_data(body.clone(), true).unwrap();
            answers.push(answer);
        }
        for answer in answers {
            let mut body = answer.await.unwrap().into_body();
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
            }
            let trailers = body.trailers().await.unwrap().unwrap();
            assert_eq!(trailers["grpc-status"], "0");
        }
    }
}
