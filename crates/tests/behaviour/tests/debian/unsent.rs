//! Data that the kernel has not sent yet: urgent responses wait behind it.

use std::fmt::Write as _;

use brisk_behaviour::h2::{SETTINGS, WINDOW_UPDATE, frame, get_with, preface};
use brisk_behaviour::linked::{link, words_before};
use brisk_behaviour::site::{LIMIT, NAME, Site};
use brisk_link::SERVER;
use brisk_testkit::process::run;
use brisk_testkit::programs::program;

/// 10 Mbit/s: the kernel's limit for all connections, 128 KiB, takes 105 ms.
const HALF: &str = "delay=10ms,rate=10M,queue=48k";

/// Bytes of the large response before the second request.
const BEFORE: usize = 3 << 20;

/// Attempts with a client that was not paused, of which more than half have an early urgent response, and attempts at most: on a
/// busy machine, the client does not read for some time now and then, and the large response collects in its kernel.
const VALID: usize = 5;
const TRIES: usize = 60;

/// Time between two reads above which the client was paused, in seconds: the link delivers a record in 13 ms.
const PAUSE: f64 = 0.06;

/// Sends the first requests, and the last one after `before` bytes of stream 1. Prints the number of bytes of stream 1 from
/// then until the first frame of stream 3, and the longest time between two reads since 0.3 s before that request.
const CLIENT: &str = r"
import socket, ssl, sys, time
host, port, name, ca, before, first, last = sys.argv[1:]
tls = ssl.create_default_context(cafile=ca)
tls.set_alpn_protocols(['h2'])
io = tls.wrap_socket(socket.create_connection((host, int(port))), server_hostname=name)
io.sendall(bytes.fromhex(first))
data, bulk, asked, since = bytearray(), 0, None, None
reads = [time.monotonic()]
while True:
    piece = io.recv(65536)
    assert piece, 'the end of the connection'
    reads.append(time.monotonic())
    data += piece
    while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], 'big'):
        length, kind, stream = int.from_bytes(data[:3], 'big'), data[3], int.from_bytes(data[5:9], 'big')
        assert stream != 1 or not data[4] & 1, 'the end of the large response'
        del data[:9 + length]
        if stream == 3:
            near = [read for read in reads if read > since - 0.3]
            print(bulk - asked, max((end - start for start, end in zip(near, near[1:])), default=1))
            sys.exit()
        if stream == 1 and kind == 0:
            bulk += length
    if asked is None and bulk >= int(before):
        asked, since = bulk, time.monotonic()
        io.sendall(bytes.fromhex(last))
";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes everything");
        hex
    })
}

#[test]
fn an_urgent_response_overtakes_most_of_a_large_one_on_a_slow_link() {
    let Some(link) = link(HALF) else { return };
    let keys = format!("server.https = [\"{SERVER}:0\"]\n");
    let tables = "\n[[host.route]]\npath = \"/files/\"\nstatic = \"www\"\n\
                  \n[[host.route]]\npath = \"/\"\nrespond = { body = \"urgent\" }\n";
    let site = Site::custom(&keys, tables, |setup| {
        setup.behind(&words_before(&link.server(""))).file("www/bulk", vec![b'x'; 2 * BEFORE])
    });
    // SETTINGS_INITIAL_WINDOW_SIZE and the window of the connection: 1 GiB.
    let windows = [
        frame(SETTINGS, 0, 0, &[0, 4, 0x3f, 0xff, 0xff, 0xff]),
        frame(WINDOW_UPDATE, 0, 0, &[0x3f, 0, 0, 0]),
    ];
    let first =
        [&preface()[..], &windows.concat(), &get_with(1, "/files/bulk", &[("priority", "u=7")])].concat();
    let last = get_with(3, "/urgent", &[("priority", "u=0")]);
    let overtaken = || {
        let mut client = link.client(program("python3"));
        client.args(["-c", CLIENT, &SERVER.to_string(), &site.brisk.https().port().to_string(), NAME]);
        client.arg(site.ca.root_file()).args([&BEFORE.to_string(), &hex(&first), &hex(&last)]);
        let printed = run(&mut client, b"", LIMIT).success();
        let (overtaken, pause) = printed.trim().split_once(' ').expect("two numbers");
        let pause: f64 = pause.parse().expect("seconds");
        (overtaken.parse::<usize>().expect("a number"), pause)
    };
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        seen.push(overtaken());
        let valid = seen.iter().filter(|(_, pause)| *pause < PAUSE);
        // In flight, in the queue of the link and in a batch of records: 110 KB; in the kernel 31 KB in place of 128 KiB.
        let (count, early) = valid
            .fold((0, 0), |(count, early), (bytes, _)| (count + 1, early + usize::from(*bytes < 210 << 10)));
        if count >= VALID && 2 * early > count {
            return;
        }
    }
    panic!("bytes of the large response before the urgent one, and pauses of the client: {seen:?}");
}
