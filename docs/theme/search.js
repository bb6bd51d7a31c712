// The search takes names of options as they are written: to its index, `--wrt` is a mistake
// and `-o` a word to leave out. Queries are the messages of type 2 to its worker.
"use strict";
{
  const { postMessage } = Worker.prototype;
  Worker.prototype.postMessage = function (message, ...rest) {
    const isQuery = message?.type === 2;
    const sent = isQuery ? { ...message, data: message.data.replace(/(^|\s)-+(?=\S)/g, "$1") } : message;
    return postMessage.call(this, sent, ...rest);
  };
}
