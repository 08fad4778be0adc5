/** Auto-configuration for Spring Boot. */
package io.github.tollgatelimits.spring;
