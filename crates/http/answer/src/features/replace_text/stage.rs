//! The replacement of texts in responses.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;

use brisk_http::message::Response;
use brisk_http::validate::Refusal;
use brisk_transform::body::Body;
use brisk_transform::weak_tags::WeakTags;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};

use super::ReplaceTextSettings;
use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};
use crate::variables::RequestValues;

/// Length in bytes of all texts of a request together: of the settings, and of values of the request.
const LONGEST: usize = 96 << 10;

/// Asks for responses without a coding, and replaces their texts. Compiled if the route has `replace_text`.
#[derive(Debug)]
pub(crate) struct ReplaceTextStage(ReplaceTextSettings);

/// The texts for one request, in place of those of [`ReplaceTextSettings::from`].
#[derive(Debug)]
pub(crate) struct FormedTexts {
    texts: Rc<[Bytes]>,
    /// Tags of the client's copies that may have been changed.
    known: WeakTags,
}

impl FormedTexts {
    fn size(&self) -> usize {
        self.texts.iter().map(Bytes::len).sum()
    }
}

impl Stage for ReplaceTextStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        context.route()?.replace_text.clone().map(Self)
    }

    fn request(
        &self,
        exchange: &mut Exchange,
        request: &mut ClientRequest,
        state: &mut RequestState,
    ) -> Flow {
        // The bytes of a tunnel are no HTTP content.
        if request.is_tunnel {
            return Flow::Continue;
        }
        let values = RequestValues { exchange, head: &request.head };
        let path = request.path();
        let to = self.0.to.iter().map(|to| Bytes::from(to.form(&values, &path.decoded)));
        let known = WeakTags::of(&request.head.headers);
        let formed = Box::new(FormedTexts { texts: to.collect(), known });
        // The body holds them until its end, which the budget of heads does not count.
        if formed.size() > LONGEST {
            return Flow::Refuse(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "replaced-text"));
        }
        if let Err(refusal) = exchange.hold_head(|| formed.size()) {
            return Flow::Refuse(refusal);
        }
        // A part would show texts that the whole response does not have (RFC 9110 section 14.2 permits to ignore ranges).
        let kind = mime_guess::from_path(OsStr::from_bytes(&path.decoded)).first_raw();
        let may_concern = kind.is_none_or(|kind| self.0.from.concern_type(kind));
        state.replaced_texts = Some(formed);
        if may_concern {
            for name in [header::RANGE, header::IF_RANGE] {
                request.head.headers.remove(name);
            }
        }
        // Texts are found in content without a coding only.
        request.head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Flow::Continue
    }

    fn response(&self, exchange: &Exchange, state: &RequestState, response: &mut Response<Body>) {
        if let Some(to) = &state.replaced_texts {
            self.0.from.apply(&to.texts, exchange.connection(), state.is_head, &to.known, response);
        }
    }
}
