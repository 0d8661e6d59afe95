//! One direction of a link: computes when a packet that enters leaves, or drops it.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Properties of one direction of a link. The default forwards packets unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Direction {
    /// Time from the end of a packet's transmission until its arrival.
    pub delay: Duration,
    /// Bits of IP packets per second. `None`: no limit.
    pub rate: Option<u64>,
    /// Fraction of packets that is lost, from 0 to 1, independently for each packet.
    pub loss: f64,
    /// Fraction of packets, from 0 to 1, that travel for half of `delay` longer, so that later packets overtake them.
    pub reorder: f64,
    /// Maximum bytes waiting for transmission; further packets are dropped. `None`: no limit. Without `rate`, none
    /// wait.
    pub queue: Option<usize>,
}

/// The packets in transit in one direction. Does no I/O: the caller provides the time and the packets.
#[derive(Debug)]
pub struct Pipe {
    direction: Direction,
    /// End of the transmission of all packets so far.
    free: Instant,
    /// In the order of their arrival.
    travelling: VecDeque<(Instant, Vec<u8>)>,
    random: u64,
}

impl Pipe {
    /// Creates an empty pipe. `seed` determines which packets are lost.
    pub fn new(direction: Direction, now: Instant, seed: u64) -> Self {
        // Xorshift must not start at zero, which it never leaves.
        Self { direction, free: now, travelling: VecDeque::new(), random: seed | 1 }
    }

    /// Enters a packet. Returns whether it will arrive.
    pub fn push(&mut self, now: Instant, packet: &[u8]) -> bool {
        let start = self.free.max(now);
        // A lost packet takes no time of transmission: the loss is before the bottleneck, not behind it.
        if self.happens(self.direction.loss) || self.is_full(start - now, packet.len()) {
            return false;
        }
        self.free = start + self.transmission(packet.len());
        let mut arrival = self.free + self.direction.delay;
        if self.happens(self.direction.reorder) {
            arrival += self.direction.delay / 2;
        }
        // `<=` keeps packets with the same arrival in the order in which they were sent.
        let place = self.travelling.partition_point(|(at, _)| *at <= arrival);
        self.travelling.insert(place, (arrival, packet.to_vec()));
        true
    }

    /// Time of the next arrival; `None` while the pipe is empty.
    pub fn next(&self) -> Option<Instant> {
        self.travelling.front().map(|(at, _)| *at)
    }

    /// Removes the next packet if it has arrived.
    pub fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        let due = self.next().is_some_and(|at| at <= now);
        due.then(|| self.travelling.pop_front()).flatten().map(|(_, packet)| packet)
    }

    fn transmission(&self, bytes: usize) -> Duration {
        let Some(rate) = self.direction.rate else { return Duration::ZERO };
        let nanos = u128::from(bytes as u64) * 8 * 1_000_000_000 / u128::from(rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn is_full(&self, backlog: Duration, more: usize) -> bool {
        let (Some(queue), Some(rate)) = (self.direction.queue, self.direction.rate) else { return false };
        let waiting = backlog.as_nanos() * u128::from(rate) / 8 / 1_000_000_000;
        waiting + more as u128 > queue as u128
    }

    /// Whether an event with this probability happens to a packet; by xorshift64, which is random enough for packets.
    fn happens(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // 53 bits, the precision of an f64.
        ((self.random >> 11) as f64) < probability * (1_u64 << 53) as f64
    }
}

/// Invalid text of a [`Direction`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected something like delay=25ms,rate=10M,loss=0.5%,reorder=1%,queue=64k", self.0)
    }
}

impl std::error::Error for ParseError {}

impl FromStr for Direction {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut direction = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let set = part.split_once('=').and_then(|(key, value)| direction.set(key, value));
            set.ok_or_else(|| ParseError(part.to_owned()))?;
        }
        Ok(direction)
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delay={}us,loss={}%", self.delay.as_micros(), self.loss * 100.0)?;
        if self.reorder > 0.0 {
            write!(f, ",reorder={}%", self.reorder * 100.0)?;
        }
        if let Some(rate) = self.rate {
            write!(f, ",rate={rate}")?;
        }
        if let Some(queue) = self.queue {
            write!(f, ",queue={queue}")?;
        }
        Ok(())
    }
}

impl Direction {
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "delay" => self.delay = duration(value)?,
            "rate" => self.rate = Some(count(value, 1000).filter(|rate| *rate > 0)?),
            "queue" => self.queue = Some(usize::try_from(count(value, 1024)?).ok()?),
            "loss" => self.loss = share(value)?,
            "reorder" => self.reorder = share(value)?,
            _ => return None,
        }
        Some(())
    }
}

/// Parses `25ms` or `300us`.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.len().checked_sub(2)?);
    let number: f64 = number.parse().ok()?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "us" => number / 1e6,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// Parses a number with an optional suffix `k`, `M` or `G`, which stand for powers of `base`.
fn count(text: &str, base: u64) -> Option<u64> {
    let (digits, power) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1),
        b'M' => (&text[..text.len() - 1], 2),
        b'G' => (&text[..text.len() - 1], 3),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(base.pow(power))
}

/// Parses `0.5%`.
fn share(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pipe(text: &str) -> (Pipe, Instant) {
        let now = Instant::now();
        (Pipe::new(text.parse().expect("a direction"), now, 7), now)
    }

    #[test]
    fn a_packet_arrives_after_its_transmission_and_the_delay() {
        // 1,000 bytes at 1 Mbit/s take 8 ms.
        let (mut pipe, start) = pipe("delay=20ms,rate=1M");
        assert!(pipe.push(start, &[1; 1000]) && pipe.push(start, &[2; 500]));
        assert_eq!(pipe.next(), Some(start + 28 * MS));
        assert_eq!(pipe.pop(start + 27 * MS), None);
        assert_eq!(pipe.pop(start + 28 * MS), Some(vec![1; 1000]));
        assert_eq!(pipe.next(), Some(start + 32 * MS));
        assert_eq!(pipe.pop(start + 40 * MS), Some(vec![2; 500]));
        assert_eq!(pipe.next(), None);
    }

    #[test]
    fn chosen_packets_are_overtaken() {
        let (mut pipe, start) = pipe("delay=20ms,reorder=30%");
        let numbers: Vec<u32> = (0..1000).collect();
        for number in &numbers {
            assert!(pipe.push(start + MS * *number, &number.to_le_bytes()));
        }
        let mut arrived = Vec::new();
        while let Some(at) = pipe.next() {
            let packet = pipe.pop(at).expect("it is due");
            let number = u32::from_le_bytes(packet.try_into().expect("four bytes"));
            let late = at - (start + MS * number);
            assert!(late == 20 * MS || late == 30 * MS, "{late:?}");
            arrived.push(number);
        }
        let overtaken = arrived.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!((100..400).contains(&overtaken), "{overtaken}");
        arrived.sort_unstable();
        assert_eq!(arrived, numbers);
    }

    #[test]
    fn a_link_that_was_idle_transmits_at_once() {
        let (mut pipe, start) = pipe("rate=1M");
        pipe.push(start, &[0; 1000]);
        pipe.push(start + 100 * MS, &[0; 1000]);
        pipe.pop(start + 8 * MS).expect("the first");
        assert_eq!(pipe.next(), Some(start + 108 * MS));
    }

    #[test]
    fn a_packet_beyond_the_queue_is_dropped() {
        let (mut pipe, start) = pipe("rate=8M,queue=3000");
        // 1,000 bytes per millisecond.
        let taken = (0..5).filter(|_| pipe.push(start, &[0; 1000])).count();
        assert_eq!(taken, 3);
        assert!(pipe.push(start + MS, &[0; 1000]), "one was transmitted meanwhile");
    }

    #[test]
    fn as_many_are_lost_as_asked_for_and_the_same_each_time() {
        let lost = || {
            let (mut pipe, now) = pipe("loss=10%");
            (0..100_000).filter(|_| !pipe.push(now, &[])).collect::<Vec<i32>>()
        };
        let first = lost();
        assert!((9_500..10_500).contains(&first.len()), "{}", first.len());
        assert_eq!(first, lost());
    }

    #[test]
    fn what_is_written_is_read_and_nonsense_is_named() {
        let direction = Direction {
            delay: Duration::from_micros(12_500),
            rate: Some(10_000_000),
            loss: 0.005,
            reorder: 0.25,
            queue: Some(65_536),
        };
        assert_eq!("delay=12.5ms,rate=10M,loss=0.5%,reorder=25%,queue=64k".parse(), Ok(direction));
        assert_eq!(direction.to_string().parse(), Ok(direction));
        assert_eq!("".parse(), Ok(Direction::default()));
        for wrong in
            ["delay=25", "rate=0", "loss=0.5", "loss=101%", "speed=1M", "delay", "delay=-1ms", "queue=-1"]
        {
            let error = wrong.parse::<Direction>().expect_err("no direction");
            assert!(error.to_string().starts_with(wrong), "{error}");
        }
    }
}
