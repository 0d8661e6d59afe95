use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::testing::{Forger, Stage, close, drain, read, soon, write};

const MIB: usize = 1024 * 1024;

/// Content types of RFC 8446 section 5.1.
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

#[tokio::test]
async fn a_mebibyte_goes_both_ways_past_a_client_that_reads_slowly() {
    for version in [&TLS12, &TLS13] {
        let stage = Stage::new();
        let (mut client, mut accepted) = stage.connect(&Arc::new(stage.client(version))).await;
        let data = pattern(MIB);
        let server = async {
            let mut received = Vec::new();
            while received.len() < MIB {
                received.extend(read(&mut accepted.stream).await.expect("data"));
            }
            assert!(received == data, "the upload is not what was sent");
            write(&mut accepted.stream, &received).await.expect("a client that reads");
            close(&mut accepted.stream).await.expect("a client that reads");
        };
        let client = async {
            client.write_all(&data).await.expect("a server that reads");
            let mut received = Vec::new();
            let mut piece = vec![0; 3000];
            loop {
                let len = client.read(&mut piece).await.expect("data, then close_notify");
                if len == 0 {
                    break;
                }
                received.extend_from_slice(&piece[..len]);
                tokio::task::yield_now().await;
            }
            assert!(received == data, "the download is not what was sent");
        };
        soon(async { tokio::join!(server, client) }).await;
    }
}

#[tokio::test]
async fn without_tls_data_goes_both_ways_and_ends_as_the_client_ends_it() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (mut client, (server, _)) = (client.expect("a connection"), accepted.expect("a connection"));
    let data = pattern(MIB);
    let server = async {
        let mut stream = Stream::plain(server, b"before".to_vec(), 6);
        let mut received = Vec::new();
        while received.len() < 6 + MIB {
            received.extend(read(&mut stream).await.expect("data"));
        }
        assert!(received[..6] == *b"before" && received[6..] == data, "not what was sent");
        assert!(read(&mut stream).await.expect("the end").is_empty());
        write(&mut stream, &data).await.expect("a client that reads");
        close(&mut stream).await.expect("a client that reads");
        stream.bytes()
    };
    let client = async {
        client.write_all(&data).await.expect("a server that reads");
        client.shutdown().await.expect("an end");
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.expect("data and the end");
        assert!(received == data, "not what was sent");
    };
    let (bytes, ()) = soon(async { tokio::join!(server, client) }).await;
    assert_eq!(bytes, (6 + MIB as u64, MIB as u64));
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_one_batch() {
    let stage = Stage::new();
    let (_client, mut accepted) = stage.connect(&Arc::new(stage.client(&TLS13))).await;
    let stream = &mut accepted.stream;
    let data = pattern(MIB);
    // More than the buffers of both kernels hold.
    for _ in 0..64 {
        let slices = [IoSlice::new(&data)];
        if futures_pending(|cx| stream.poll_write(cx, &slices).map_ok(|_| ())).await
            && futures_pending(|cx| stream.poll_drain(cx)).await
        {
            break;
        }
    }
    assert!(stream.is_blocked());
    let held = stream.outgoing.len();
    assert!(held <= 17 * (PLAINTEXT + 64), "{held} bytes wait");
    for _ in 0..3 {
        assert!(futures_pending(|cx| stream.poll_drain(cx)).await);
    }
    assert!(stream.outgoing.len() <= held + PLAINTEXT + 64);
}

#[tokio::test]
async fn batches_grow_while_the_socket_takes_them() {
    let stage = Stage::new();
    let (mut client, mut accepted) = stage.connect(&Arc::new(stage.client(&TLS13))).await;
    let data = pattern(MIB);
    let mut batches = Vec::new();
    for _ in 0..8 {
        let slices = [IoSlice::new(&data)];
        let written = soon(std::future::poll_fn(|cx| accepted.stream.poll_write(cx, &slices))).await;
        batches.push(written.expect("a client that reads"));
        assert!(accepted.stream.unsent() >= batches[batches.len() - 1]);
        let mut received = vec![0; batches[batches.len() - 1]];
        let read = client.read_exact(&mut received);
        let (drained, read) = soon(async { tokio::join!(drain(&mut accepted.stream), read) }).await;
        drained.expect("a client that reads");
        read.expect("a server that writes");
        assert_eq!(accepted.stream.unsent(), 0);
    }
    assert!(batches[0] <= 2 * PLAINTEXT, "{batches:?}");
    assert!(batches[7] >= 15 * PLAINTEXT, "{batches:?}");
}

async fn futures_pending(mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<()>>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(poll(cx).is_pending())).await
}

#[tokio::test]
async fn a_turn_sends_one_batch_and_wakes_the_writer_that_has_more() {
    let stage = Stage::new();
    let (_client, mut accepted) = stage.connect(&Arc::new(stage.client(&TLS13))).await;
    let stream = &mut accepted.stream;
    let data = pattern(MIB);
    let slices = [IoSlice::new(&data)];
    let waker = Arc::new(Wakes::default());
    let task = Waker::from(Arc::clone(&waker));
    let mut context = Context::from_waker(&task);
    let sent = stream.bytes().1;
    let Poll::Ready(Ok(accepted)) = stream.poll_write(&mut context, &slices) else { panic!("no room") };
    assert!((PLAINTEXT..=2 * PLAINTEXT).contains(&accepted), "{accepted}");
    let rest = [IoSlice::new(&data[accepted..])];
    assert!(stream.poll_write(&mut context, &rest).is_pending());
    assert_eq!((stream.bytes().1, waker.0.load(Ordering::Relaxed)), (sent, 0));
    assert!(stream.poll_drain(&mut context).is_ready());
    assert!(stream.poll_drain(&mut context).is_ready());
    assert_eq!(waker.0.load(Ordering::Relaxed), 1);
    // More data follows, so the connection is not idle.
    assert!(stream.is_blocked());
    assert!(stream.poll_write(&mut context, &rest).is_ready());
    assert!(!stream.is_blocked());
}

#[tokio::test]
async fn room_is_what_a_write_accepts() {
    let stage = Stage::new();
    let (_client, mut accepted) = stage.connect(&Arc::new(stage.client(&TLS13))).await;
    let stream = &mut accepted.stream;
    let data = pattern(MIB);
    let mut context = Context::from_waker(Waker::noop());
    let mut at = 0;
    // Up to a full batch, with records of any size.
    while let Poll::Ready(room) = stream.poll_room(&mut context) {
        let length = room.expect("a client that is there").min(5000);
        let written = stream.poll_write(&mut context, &[IoSlice::new(&data[at..at + length])]);
        assert!(
            matches!(written, Poll::Ready(Ok(accepted)) if accepted == length),
            "{written:?} of {length}"
        );
        at += length;
    }
    assert!(stream.is_blocked() && at > PLAINTEXT, "{at}");
    assert!(stream.poll_drain(&mut context).is_ready());
    let Poll::Ready(Ok(room)) = stream.poll_room(&mut context) else { panic!("no room") };
    assert!(room > 0 && !stream.is_blocked());
}

/// Counts wake-ups.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_nearly_full_batch_takes_little_and_then_a_record() {
    for version in [&TLS12, &TLS13] {
        let stage = Stage::new();
        let (mut client, mut accepted) = stage.connect(&Arc::new(stage.client(version))).await;
        let data = pattern(18 * PLAINTEXT);
        let stream = &mut accepted.stream;
        // Beyond the small records.
        write(stream, &data[..PLAINTEXT]).await.expect("written");
        drain(stream).await.expect("sent");
        client.read_exact(&mut vec![0; PLAINTEXT]).await.expect("received");
        let (first, rest) = data.split_at(15 * PLAINTEXT);
        let (little, rest) = rest.split_at(APART);
        for part in [first, little, rest] {
            write(stream, part).await.expect("written");
        }
        let mut received = vec![0; data.len()];
        let (drained, read) =
            soon(async { tokio::join!(drain(stream), client.read_exact(&mut received)) }).await;
        drained.expect("sent");
        read.expect("received");
        assert!(received == data);
    }
}

#[tokio::test]
async fn an_answer_goes_out_while_a_handshake_message_is_in_parts() {
    let stage = Stage::new();
    let (client, mut accepted) = stage.connect(&Arc::new(stage.client(&TLS13))).await;
    let (mut tcp, mut forger) = Forger::new(client);
    let request = forger.record(APPLICATION_DATA, b"request");
    // The first bytes of a KeyUpdate.
    let part = forger.record(HANDSHAKE, &[24, 0, 0]);
    tcp.write_all(&[request, part].concat()).await.expect("sent");
    let stream = &mut accepted.stream;
    assert_eq!(soon(read(stream)).await.expect("a request"), b"request");
    assert!(futures_pending(|cx| stream.poll_fill(cx).map_ok(|_| ())).await);
    write(stream, b"answer").await.expect("written");
    drain(stream).await.expect("sent");
    // The rest of it: an update that is not requested from the server.
    let rest = [forger.record(HANDSHAKE, &[1]), forger.record(HANDSHAKE, &[0])].concat();
    tcp.write_all(&rest).await.expect("sent");
    close(stream).await.expect("closed");
}

#[tokio::test]
async fn a_message_without_end_is_refused() {
    let stage = Stage::new();
    let (client, mut accepted) = stage.connect(&Arc::new(stage.client(&TLS13))).await;
    let (mut tcp, mut forger) = Forger::new(client);
    let mut parts = forger.record(HANDSHAKE, &[24, 0, 0xff, 0]);
    for _ in 0..4000 {
        parts.extend(forger.record(HANDSHAKE, &[0]));
    }
    let server = async {
        let error = read(&mut accepted.stream).await.expect_err("a refusal");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        drop(accepted);
    };
    let _ = soon(async { tokio::join!(server, tcp.write_all(&parts)) }).await;
}

#[tokio::test]
async fn garbage_after_the_handshake_gets_an_alert_behind_what_was_sealed() {
    let stage = Stage::new();
    let (mut client, mut accepted) = stage.connect(&Arc::new(stage.client(&TLS13))).await;
    let stream = &mut accepted.stream;
    let answer = pattern(PLAINTEXT + 100);
    write(stream, &answer).await.expect("written");
    client
        .get_mut()
        .0
        .write_all(b"\x17\x03\x03\x00\x20ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ")
        .await
        .expect("sent");
    let error = soon(read(stream)).await.expect_err("no data");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    soon(read(stream)).await.expect_err("still none");
    close(stream).await.expect("closed");
    // Out of order, the alert could not be decrypted.
    let error = soon(client.read_to_end(&mut Vec::new())).await.expect_err("an alert");
    assert!(error.to_string().contains("BadRecordMac"), "{error}");
}

#[tokio::test]
async fn keys_are_updated_between_the_records_of_an_answer() {
    let stage = Stage::new();
    let (mut client, mut accepted) = stage.connect(&Arc::new(stage.client(&TLS13))).await;
    let stream = &mut accepted.stream;
    let answer = pattern(40 * PLAINTEXT);
    write(stream, &answer[..2 * PLAINTEXT]).await.expect("written");
    client.get_mut().1.refresh_traffic_keys().expect("a key update");
    client.write_all(b"more").await.expect("sent");
    client.flush().await.expect("sent");
    assert_eq!(soon(read(stream)).await.expect("data"), b"more");
    let server = async {
        write(stream, &answer[2 * PLAINTEXT..]).await.expect("written");
        drain(stream).await.expect("sent");
    };
    let mut received = vec![0; answer.len()];
    soon(async { tokio::join!(server, client.read_exact(&mut received)) }).await.1.expect("received");
    assert!(received == answer);
}

#[tokio::test]
async fn ends_are_distinguished() {
    let stage = Stage::new();
    let config = Arc::new(stage.client(&TLS13));
    let (mut client, mut accepted) = stage.connect(&config).await;
    client.shutdown().await.expect("close_notify");
    assert_eq!(soon(read(&mut accepted.stream)).await.expect("a proper end"), b"");
    write(&mut accepted.stream, b"last words").await.expect("half open");
    close(&mut accepted.stream).await.expect("closed");
    let mut received = Vec::new();
    soon(client.read_to_end(&mut received)).await.expect("close_notify");
    assert_eq!(received, b"last words");

    let (client, mut accepted) = stage.connect(&config).await;
    drop(client.into_inner().0);
    let error = soon(read(&mut accepted.stream)).await.expect_err("an end without close_notify");
    assert!(matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset), "{error}");
}

#[tokio::test]
async fn what_was_read_too_far_comes_again() {
    let stage = Stage::new();
    let (mut client, mut accepted) = stage.connect(&Arc::new(stage.client(&TLS13))).await;
    client.write_all(b"cd").await.expect("sent");
    let stream = &mut accepted.stream;
    assert!(soon(std::future::poll_fn(|cx| stream.poll_fill(cx))).await.expect("data"));
    stream.unread(b"ab");
    assert_eq!(read(stream).await.expect("data"), b"abcd");
}

#[tokio::test]
async fn records_without_data_are_read_in_turns() {
    // rustls ends a connection after 32 of them in a row.
    const RECORDS: usize = 30;
    const PADDING: usize = 16 << 10;
    let stage = Stage::new();
    let (client, mut accepted) = stage.connect(&Arc::new(stage.client(&TLS13))).await;
    let (mut tcp, mut forger) = Forger::new(client);
    let mut records: Vec<_> =
        (0..RECORDS).flat_map(|_| forger.padded(APPLICATION_DATA, b"", PADDING)).collect();
    records.extend(forger.record(APPLICATION_DATA, b"data"));
    let sending = tokio::spawn(async move {
        tcp.write_all(&records).await.expect("a server that reads");
        tcp
    });
    let stream = &mut accepted.stream;
    let filled = std::future::poll_fn(|cx| {
        let before = stream.bytes().0;
        let filled = stream.poll_fill(cx);
        let read = stream.bytes().0 - before;
        // The last read begins below the limit.
        assert!(read <= 3 * TurnLimit::BYTES as u64, "{read} bytes in a turn");
        filled
    });
    assert!(soon(filled).await.expect("data"));
    drop(sending.await);
}
