//! Returns the body of the request: the work of the sample handler `echo`, without a queue.

use wasip2::http::types::{
    Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam,
};
use wasip2::io::streams::StreamError;

struct Echo;

impl wasip2::exports::http::incoming_handler::Guest for Echo {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let body = read(&request);
        let length = body.len().to_string().into_bytes();
        let headers = [("content-length".to_owned(), length)];
        let headers = Fields::from_list(&headers).expect("a valid header");
        let response = OutgoingResponse::new(headers);
        let outgoing = response.body().expect("the body is taken once");
        ResponseOutparam::set(out, Ok(response));
        let stream = outgoing.write().expect("the stream is taken once");
        for part in body.chunks(4096) {
            stream.blocking_write_and_flush(part).expect("the client takes the body");
        }
        drop(stream);
        OutgoingBody::finish(outgoing, None).expect("as long as its Content-Length");
    }
}

fn read(request: &IncomingRequest) -> Vec<u8> {
    let body = request.consume().expect("the body is taken once");
    let stream = body.stream().expect("the stream is taken once");
    let mut all = Vec::new();
    loop {
        match stream.blocking_read(1 << 16) {
            Ok(part) => all.extend(part),
            Err(StreamError::Closed) => return all,
            Err(error) => panic!("the request's body: {error}"),
        }
    }
}

wasip2::http::proxy::export!(Echo);
