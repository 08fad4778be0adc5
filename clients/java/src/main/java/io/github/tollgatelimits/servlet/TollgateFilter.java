package io.github.tollgatelimits.servlet;

import io.github.tollgatelimits.CheckRequest;
import io.github.tollgatelimits.Decision;
import io.github.tollgatelimits.TollgateClient;
import io.github.tollgatelimits.middleware.Answer;
import io.github.tollgatelimits.middleware.LimitOptions;
import io.github.tollgatelimits.middleware.RequestView;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpFilter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/**
 * Checks each request of a Jakarta servlet container, and answers those that are refused.
 *
 * <p>The thread of the request waits for the check, at most the deadline of the client. The filter
 * does not close the client.
 */
public final class TollgateFilter extends HttpFilter {
  private static final long serialVersionUID = 1L;

  private final transient TollgateClient client;
  private final transient LimitOptions<HttpServletRequest> options;

  private record ServletView(HttpServletRequest request) implements RequestView {
    @Override
    public String method() {
      return request.getMethod();
    }

    @Override
    public String path() {
      return request.getRequestURI();
    }

    @Override
    public List<String> headers(String name) {
      return Collections.list(request.getHeaders(name));
    }

    @Override
    public String peerAddress() {
      String address = request.getRemoteAddr();
      return address == null ? "" : address.replace("[", "").replace("]", "");
    }
  }

  /** Creates a filter. */
  public TollgateFilter(TollgateClient client, LimitOptions<HttpServletRequest> options) {
    this.client = Objects.requireNonNull(client, "client");
    this.options = Objects.requireNonNull(options, "options");
  }

  @Override
  protected void doFilter(
      HttpServletRequest request, HttpServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    Optional<CheckRequest> check = options.checkOf(new ServletView(request), request);
    if (check.isEmpty()) {
      chain.doFilter(request, response);
      return;
    }
    Decision decision = client.check(check.get());
    options.notifyDecision(request, decision);
    Answer answer = options.answer(decision);
    answer.httpHeaders().forEach(response::setHeader);
    if (answer.passes()) {
      chain.doFilter(request, response);
      return;
    }
    byte[] body = answer.body().getBytes(StandardCharsets.UTF_8);
    response.setStatus(answer.status());
    response.setContentType(answer.contentType());
    response.setContentLength(body.length);
    response.getOutputStream().write(body);
  }
}
