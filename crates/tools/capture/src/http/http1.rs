//! Requests of HTTP/1.1.

use std::collections::VecDeque;

use brisk_handshake_view::Party;
use brisk_http_client::http1::{Body, parse_head};
use brisk_http_client::number;

use super::{Exchange, Exchanges, NotHttp, Place, short};

/// Longest head.
const HEAD: usize = 64 * 1024;

/// Maximum number of fields of a head; more are [`NotHttp`].
const FIELDS: usize = 200;

/// Maximum number of requests without a response; more are [`NotHttp`].
const PENDING: usize = 1000;

/// Both directions of a connection.
#[derive(Debug, Default)]
pub(super) struct Http1 {
    sides: [Side; 2],
    /// Requests without a complete response: index, and whether the method is `HEAD` or `CONNECT`.
    pending: VecDeque<(Option<usize>, Method)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Head,
    Connect,
    Other,
}

#[derive(Debug, Default)]
struct Side {
    /// Bytes of an incomplete head, and their place.
    head: Vec<u8>,
    begin: Option<Place>,
    /// The [`Body`] that is read, and the index of its request.
    body: Option<(Body, Option<usize>)>,
}

impl Http1 {
    /// Adds bytes.
    pub(super) fn add(
        &mut self,
        from: Party,
        place: Place,
        mut bytes: &[u8],
        exchanges: &mut Exchanges,
    ) -> Result<(), NotHttp> {
        while !bytes.is_empty() {
            let side = &mut self.sides[from as usize];
            if let Some((body, index)) = &mut side.body {
                let taken = body.take(bytes).map_err(|_| NotHttp)?;
                bytes = &bytes[taken.used..];
                if let Some(exchange) = exchanges.get(*index) {
                    let count =
                        if from == Party::Client { &mut exchange.received } else { &mut exchange.sent };
                    *count += taken.content;
                    if from == Party::Server {
                        exchange.end = Some(place);
                    }
                }
                if body.is_complete() {
                    side.body = None;
                }
                continue;
            }
            side.begin.get_or_insert(place);
            side.head.extend_from_slice(bytes);
            let before = side.head.len() - bytes.len();
            // The head is parsed anew with each piece; `HEAD` bounds the cost.
            let length = match from {
                Party::Client => self.request(exchanges)?,
                Party::Server => self.response(place, exchanges)?,
            };
            let side = &mut self.sides[from as usize];
            let Some(length) = length else {
                return if side.head.len() <= HEAD { Ok(()) } else { Err(NotHttp) };
            };
            (side.head, side.begin) = (Vec::new(), None);
            // Earlier bytes were no complete head.
            bytes = &bytes[length.saturating_sub(before).min(bytes.len())..];
        }
        Ok(())
    }

    /// Takes the head of a request if it is complete, and returns its length.
    fn request(&mut self, exchanges: &mut Exchanges) -> Result<Option<usize>, NotHttp> {
        let side = &mut self.sides[Party::Client as usize];
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let parsed = request.parse(&side.head).map_err(|_| NotHttp)?;
        let httparse::Status::Complete(length) = parsed else { return Ok(None) };
        let value = |name: &str| {
            let mut fields = request.headers.iter();
            fields.find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
        };
        let method = request.method.ok_or(NotHttp)?;
        let mut exchange = Exchange::new(0, side.begin.ok_or(NotHttp)?);
        exchange.stream = u32::try_from(exchanges.count + 1).unwrap_or(u32::MAX);
        exchange.method = short(method.as_bytes());
        exchange.path = short(request.path.unwrap_or_default().as_bytes());
        exchange.host = short(value("host").unwrap_or_default());
        let is_chunked = value("transfer-encoding").is_some();
        let body = match value("content-length") {
            // RFC 9112 section 6.3: `Transfer-Encoding` overrides `Content-Length`.
            _ if is_chunked => Body::chunked(),
            Some(length) => Body::of_length(number(length.trim_ascii()).ok_or(NotHttp)?),
            None => Body::none(),
        };
        let kind = match method {
            "HEAD" => Method::Head,
            "CONNECT" => Method::Connect,
            _ => Method::Other,
        };
        let index = exchanges.add(exchange);
        if self.pending.len() == PENDING {
            return Err(NotHttp);
        }
        self.pending.push_back((index, kind));
        side.body = Some((body, index)).filter(|(body, _)| !body.is_complete());
        Ok(Some(length))
    }

    /// Takes the head of a response if it is complete, and returns its length.
    fn response(&mut self, place: Place, exchanges: &mut Exchanges) -> Result<Option<usize>, NotHttp> {
        let side = &mut self.sides[Party::Server as usize];
        // RFC 9112 section 9.3.2: responses have the order of their requests.
        let (index, method) = *self.pending.front().ok_or(NotHttp)?;
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let head = parse_head(&side.head, &mut fields, method == Method::Head).map_err(|_| NotHttp)?;
        let Some(head) = head else { return Ok(None) };
        if matches!(head.status, 100..200) && head.status != 101 {
            return Ok(Some(head.len));
        }
        if let Some(exchange) = exchanges.get(index) {
            exchange.status = Some(head.status);
            // The end is a preliminary one: a response without a body ends with its head.
            (exchange.response, exchange.end) = (side.begin, Some(place));
        }
        self.pending.pop_front();
        // Another protocol follows.
        if head.status == 101 || method == Method::Connect && head.status < 300 {
            return Err(NotHttp);
        }
        side.body = head.body.filter(|body| !body.is_complete()).map(|body| (body, index));
        Ok(Some(head.len))
    }

    /// The end of a direction.
    pub(super) fn closed(&mut self, from: Party, place: Place, exchanges: &mut Exchanges) {
        if let (Party::Server, Some((body, index))) = (from, &self.sides[from as usize].body)
            && body.ends_with_connection()
            && let Some(exchange) = exchanges.get(*index)
        {
            exchange.end = Some(place);
        }
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> usize {
        let heads: usize = self.sides.iter().map(|side| side.head.capacity()).sum();
        size_of::<Self>() + heads + self.pending.capacity() * size_of::<(Option<usize>, Method)>()
    }
}
